"""Celery and kombu over spanmq: a broker, `spanmq://`, and a result backend. docs/guides/celery-broker.md explains it.

The import makes kombu know the transport.
"""

from typing import Any

from spanmq.errors import ExtraNotInstalledError

try:
    from kombu import Connection
    from kombu.transport import TRANSPORT_ALIASES
except ImportError as error:
    raise ExtraNotInstalledError("the broker for Celery needs the package celery", extra="celery") from error

__all__ = ["joined"]

TRANSPORT_ALIASES["spanmq"] = "spanmq.celery.transport:Transport"


def joined(connection: Any) -> Connection:
    """Return a connection of kombu whose messages are part of the open transaction of a `connection`.

    That is psycopg's, or a connection or session of another library, as for `Client(connection=…)`. It only sends:
    `task.apply_async(args, connection=joined(connection))`. The queues must exist.
    """
    return Connection("spanmq://", transport_options={"connection": connection})
