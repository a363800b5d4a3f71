"""The pool of a client with a DSN, and the connections that it makes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from spanmq import errors
from spanmq.client.concurrency import in_thread
from spanmq.client.dsn import unreadable
from spanmq.client.password import Password, with_password

# A pool doubles its pauses from a second until this time has passed: the longest is about half of it.
RECONNECT_SECONDS: Final = 15.0


class AsyncPooledConnection(AsyncConnection[Any]):
    """A connection that a pool makes, unless one is ready."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Any:
        """Take a connection out of the list `ready`, or make a new one."""
        ready: list[AsyncConnection[Any]] = options.pop("ready")
        with suppress(IndexError):
            return ready.pop()
        return await super().connect(conninfo, **options)


class AsyncConnector:
    """The connections of a client with a DSN: those of its pool, and others for long use.

    `password` returns that of a new connection, in place of the DSN's; it may block. `pooler` says that the DSN leads
    to a pooler in transaction mode.
    """

    def __init__(self, dsn: str, *, password: Password | None, pooler: bool) -> None:
        self.password = password
        self._dsn = dsn
        self._ready: list[AsyncConnection[Any]] = []
        # JSON is UTF-8: a database, or PGCLIENTENCODING, may say otherwise.
        self._settings: dict[str, Any] = {"autocommit": True, "client_encoding": "utf8"}
        if pooler:
            self._settings["prepare_threshold"] = None

    def new_pool(
        self, size: int, on_connect: Callable[[AsyncConnection[Any]], Any] | None
    ) -> AsyncConnectionPool[Any]:
        """Return a pool of up to `size` connections, not open yet. It connects when a call needs a connection."""
        return AsyncConnectionPool(
            self._dsn if self.password is None else self._address,
            connection_class=AsyncPooledConnection,
            # With a minimum of one, a call that comes before that one is ready begins a second.
            min_size=0,
            max_size=size,
            kwargs={**self._settings, "ready": self._ready},
            configure=on_connect,
            reconnect_timeout=RECONNECT_SECONDS,
            # To start again, with short pauses at first. By itself it doubles the pauses for five minutes: a
            # server that was away for two minutes is found after four.
            reconnect_failed=AsyncConnectionPool.check,
            open=False,
            name="spanmq",
        )

    async def prepare(self) -> None:
        """Make the first connection of the pool, before it opens; raises ConnectionFailedError."""
        if not self._ready:
            self._ready.append(await self.connect())

    async def connect(self) -> AsyncConnection[Any]:
        """Return a new connection; raises ConnectionFailedError."""
        try:
            return await AsyncConnection.connect(await self._address(), **self._settings)
        except psycopg.OperationalError as error:
            raise errors.refused(str(error).strip()) from error
        except psycopg.ProgrammingError as error:  # from the parser of DSNs
            raise unreadable(error) from None

    async def close(self) -> None:
        """Close a connection that the pool did not take."""
        while self._ready:
            await self._ready.pop().close()

    async def _address(self) -> str:
        """Return the DSN with the password of this moment."""
        if self.password is None:
            return self._dsn
        return await in_thread(partial(with_password, self._dsn, self.password))
