"""Django: the schema by migrations, tasks in Django's transactions, commands. docs/guides/django.md explains it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction
from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo

from spanmq.errors import InvalidArgumentError
from spanmq.tasks import Tasks

__all__ = ["django_tasks"]


def django_tasks(name: str, *, using: str = "default", **options: Any) -> Tasks:
    """Return Tasks whose sends are part of Django's transaction, on the database of the alias `using`.

    A task with a parameter `session` gets Django's connection in `atomic()`, which the ack is part of. `name` and the
    other `options` are those of Tasks, and so is what it raises.
    """

    @contextmanager
    def atomic() -> Iterator[Any]:
        with transaction.atomic(using=using):
            yield connections[using]

    return Tasks(
        name,
        dsn=lambda: dsn_of(using),
        session=atomic,
        place=lambda: connections[using],
        around_plain=checked_connections,
        **options,
    )


@contextmanager
def checked_connections() -> Iterator[None]:
    """Close connections that broke or are too old, before and after a task, as Django does for a request."""
    _close_old_connections()
    try:
        yield
    finally:
        _close_old_connections()


def _close_old_connections() -> None:
    for connection in connections.all(initialized_only=True):
        # A test may run a task in its transaction.
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def dsn_of(using: str = "default") -> str:
    """Return the DSN of a database of the settings; of the test database in tests."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise InvalidArgumentError(
            f"the database {using!r} is not PostgreSQL",
            hint="django_tasks(…, using=…) names one that is.",
            code="invalid_setting",
        )
    # Django's parameters are psycopg's: among them are some that are not of the address.
    known = {option.keyword.decode() for option in Conninfo.get_defaults()}
    parameters = connection.get_connection_params()
    return make_conninfo(**{name: value for name, value in parameters.items() if name in known})
