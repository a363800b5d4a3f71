"""A client over one connection, made as the client's own are, for statements beside its calls, too."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import psycopg

from spanmq.client import Client
from spanmq.client._sync.pool import Connector
from spanmq.client.dsn import UNLIMITED, answer_seconds, with_timeouts
from spanmq.client.password import password_for
from spanmq.errors import ConnectionLostError, ServerReadOnlyError, from_driver

# How long the server may be silent, unless the DSN has a limit for statements, which may be long here.
ANSWER_SECONDS: Final = 600.0


def connect(
    dsn: str, *, application_name: str | None = None, pooler: bool = False
) -> psycopg.Connection[Any]:
    """Connect, in autocommit mode; raises ConnectionFailedError, InvalidArgumentError for a wrong DSN.

    With a `pooler` nothing relies on the session.
    """
    address = with_timeouts(dsn, None, application_name=application_name, pooler=pooler)
    answer = answer_seconds(dsn, UNLIMITED) or ANSWER_SECONDS
    connector = Connector(address, password=password_for(dsn), pooler=pooler, answer_seconds=answer)
    return connector.connect()


@contextmanager
def typed_errors(client: Client) -> Iterator[Client]:
    """Yield a client over a connection that stays open; errors of other statements than calls are spanmq's, too.

    Where its server has become read-only it is closed: a new one may reach another server.
    """
    try:
        yield client
    except ServerReadOnlyError:
        client.connection.close()
        raise
    except psycopg.Error as error:
        ours = from_driver(error)
        if isinstance(ours, ServerReadOnlyError):
            client.connection.close()
        raise ours or ConnectionLostError(str(error).strip()) from error


class KeptClient:
    """A client over one connection that is made when it is first used, and again after it broke."""

    __slots__ = ("_client", "_dsn", "_name")

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._name = application_name
        self._client: Client | None = None

    def __call__(self) -> AbstractContextManager[Client]:
        """Return the client for a block."""
        if self._client is None or self._client.connection.closed:
            self._client = Client(connection=connect(self._dsn, application_name=self._name))
        return typed_errors(self._client)

    def wait(self, queues: list[str], seconds: float) -> bool:
        """Wait as `client.admin.notifications.wait` does, on this connection."""
        with self() as client:
            return client.admin.notifications.wait(queues, seconds)

    def wait_no_more(self) -> None:
        """Announce that it waits no more; without a connection it does not wait."""
        if self._client is not None and not self._client.connection.closed:
            self._client.admin.notifications.wait_no_more()

    def close(self) -> None:
        """Close it; the next use makes a new one."""
        if self._client is not None:
            self._client.connection.close()
            self._client = None
