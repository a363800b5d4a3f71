"""A connection of psycopg for statements beside the client's calls: made as the client's own are, with its errors."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import psycopg

from spanmq.client import Client
from spanmq.client.dsn import unreadable
from spanmq.client.password import password_for, with_password
from spanmq.errors import ConnectionFailedError, ConnectionLostError, from_driver


def connect(dsn: str, *, application_name: str | None = None) -> psycopg.Connection[Any]:
    """Connect, in autocommit mode; raises ConnectionFailedError, InvalidArgumentError for a wrong DSN."""
    try:
        address = with_password(dsn, password_for(dsn))
        return psycopg.connect(address, autocommit=True, application_name=application_name)
    except psycopg.OperationalError as error:
        raise ConnectionFailedError(str(error).strip()) from error
    except psycopg.ProgrammingError as error:
        raise unreadable(error) from None


@contextmanager
def typed_errors(connection: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection that stays open after the block; errors of the server are raised as spanmq's."""
    try:
        yield connection
    except psycopg.Error as error:
        ours = None if connection.broken else from_driver(error)
        raise ours or ConnectionLostError(str(error).strip()) from error


class KeptConnection:
    """A connection that is made when it is first used, and again after it broke."""

    __slots__ = ("_client", "_connection", "_dsn", "_name")

    def __init__(self, dsn: str, *, application_name: str) -> None:
        self._dsn = dsn
        self._name = application_name
        self._connection: psycopg.Connection[Any] | None = None
        self._client: Client | None = None

    def __call__(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """Return the connection for a block."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._dsn, application_name=self._name)
            self._client = Client(connection=self._connection)
        return typed_errors(self._connection)

    def wait(self, queues: list[str], seconds: float) -> bool:
        """Wait as `client.admin.notifications.wait` does, on this connection."""
        with self():
            assert self._client is not None
            return self._client.admin.notifications.wait(queues, seconds)

    def wait_no_more(self) -> None:
        """Announce that it waits no more; without a connection it does not wait."""
        if self._client is not None and self._connection is not None and not self._connection.closed:
            self._client.admin.notifications.wait_no_more()

    def close(self) -> None:
        """Close it; the next use makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = self._client = None
