# Generated from src/spanmq/client/_async/pool.py by tools/generate_sync.py: change that file.

"""The pool of a client with a DSN, and the connections that it makes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg_pool import ConnectionPool

from spanmq import errors
from spanmq.client.concurrency import in_place
from spanmq.client.dsn import unreadable
from spanmq.client.password import Password, with_password

# A pool doubles its pauses from a second until this time has passed: the longest is about half of it.
RECONNECT_SECONDS: Final = 15.0


class PooledConnection(Connection[Any]):
    """A connection that a pool makes, unless one is ready."""

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Any:
        """Take a connection out of the list `ready`, or make a new one."""
        ready: list[Connection[Any]] = options.pop("ready")
        with suppress(IndexError):
            return ready.pop()
        return super().connect(conninfo, **options)


class Connector:
    """The connections of a client with a DSN: those of its pool, and others for long use.

    `password` returns that of a new connection, in place of the DSN's; it may block. `pooler` says that the DSN leads
    to a pooler in transaction mode.
    """

    def __init__(self, dsn: str, *, password: Password | None, pooler: bool) -> None:
        self.password = password
        self._dsn = dsn
        self._ready: list[Connection[Any]] = []
        # JSON is UTF-8: a database, or PGCLIENTENCODING, may say otherwise.
        self._settings: dict[str, Any] = {"autocommit": True, "client_encoding": "utf8"}
        if pooler:
            self._settings["prepare_threshold"] = None

    def new_pool(self, size: int, on_connect: Callable[[Connection[Any]], Any] | None) -> ConnectionPool[Any]:
        """Return a pool of up to `size` connections, not open yet. It connects when a call needs a connection."""
        return ConnectionPool(
            self._dsn if self.password is None else self._address,
            connection_class=PooledConnection,
            # With a minimum of one, a call that comes before that one is ready begins a second.
            min_size=0,
            max_size=size,
            kwargs={**self._settings, "ready": self._ready},
            configure=on_connect,
            reconnect_timeout=RECONNECT_SECONDS,
            # To start again, with short pauses at first. By itself it doubles the pauses for five minutes: a
            # server that was away for two minutes is found after four.
            reconnect_failed=ConnectionPool.check,
            open=False,
            name="spanmq",
        )

    def prepare(self) -> None:
        """Make the first connection of the pool, before it opens; raises ConnectionFailedError."""
        if not self._ready:
            self._ready.append(self.connect())

    def connect(self) -> Connection[Any]:
        """Return a new connection; raises ConnectionFailedError."""
        try:
            return Connection.connect(self._address(), **self._settings)
        except psycopg.OperationalError as error:
            raise errors.refused(str(error).strip()) from error
        except psycopg.ProgrammingError as error:  # from the parser of DSNs
            raise unreadable(error) from None

    def close(self) -> None:
        """Close a connection that the pool did not take."""
        while self._ready:
            self._ready.pop().close()

    def _address(self) -> str:
        """Return the DSN with the password of this moment."""
        if self.password is None:
            return self._dsn
        return in_place(partial(with_password, self._dsn, self.password))
