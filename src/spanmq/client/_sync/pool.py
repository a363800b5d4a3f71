# Generated from src/spanmq/client/_async/pool.py by tools/generate_sync.py: change that file.

"""The pool of a client with a DSN, and the connections that it makes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet, ref

import psycopg
from psycopg import Connection
from psycopg.abc import PQGen
from psycopg_pool import ConnectionPool

from spanmq import errors
from spanmq.client.concurrency import EndingPool, in_place
from spanmq.client.dsn import is_for_writing, unreadable
from spanmq.client.outage import Outage
from spanmq.client.password import Password, with_password
from spanmq.client.silence import CANCEL_SECONDS, Liveness, Patience

Result = TypeVar("Result")


class OwnConnection(Connection[Any]):
    """A connection that the client made, whose waits for the server end."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.patience = Patience()
        self.add_notice_handler(self.patience.note_end)

    def wait(self, gen: PQGen[Result], *arguments: Any, **options: Any) -> Result:
        """Wait for the server; raises OperationalError where `patience` ends."""
        self.patience.is_hurried = False
        return super().wait(self.patience.watched(gen, self.pgconn), *arguments, **options)

    def cancel_safe(self, **options: float) -> None:
        """Ask the server to cancel the statement; if it does not, the connection ends soon."""
        self.patience.is_hurried = True
        super().cancel_safe(timeout=min(options.get("timeout", CANCEL_SECONDS), CANCEL_SECONDS))


class PooledConnection(OwnConnection):
    """A connection that a pool makes, unless one is ready."""

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Any:
        """Take a connection out of the list `ready`, or make a new one."""
        connector: Connector = options.pop("connector")
        return connector.for_pool(partial(super().connect, conninfo, **options))


class Connector:
    """The connections of a client with a DSN: those of its pool, and others for long use.

    `password` returns that of a new connection, in place of the DSN's; it may block. `pooler` says that the DSN leads
    to a pooler in transaction mode. A server may be silent for up to `answer_seconds` while a statement runs; None:
    without limit, and the server is not asked either whether it still works.
    """

    def __init__(
        self, dsn: str, *, password: Password | None, pooler: bool, answer_seconds: float | None
    ) -> None:
        self.password = password
        self._liveness = (
            None if answer_seconds is None else Liveness(dsn, partial(with_password, password=password))
        )
        self._dsn = dsn
        # Whether a new connection may reach another server than one that is read-only.
        self.may_move = is_for_writing(dsn)
        self._answer_seconds = answer_seconds or 0.0
        self._ready: list[OwnConnection] = []
        # JSON is UTF-8: a database, or PGCLIENTENCODING, may say otherwise.
        self._settings: dict[str, Any] = {"autocommit": True, "client_encoding": "utf8"}
        if pooler:
            self._settings["prepare_threshold"] = None
        self._lock = Lock()  # of both sets; held for no longer than a look
        self._of_pool: WeakSet[OwnConnection] = WeakSet()
        self._others: WeakSet[OwnConnection] = WeakSet()
        # Why the pool's last attempt to connect failed, "" if it did not.
        self.last_failure = ""
        self._outage = Outage()
        self._pool: Callable[[], ConnectionPool[Any] | None] = lambda: None

    def new_pool(self, size: int, on_connect: Callable[[Connection[Any]], Any] | None) -> ConnectionPool[Any]:
        """Return a pool of up to `size` connections, not open yet. It connects when a call needs a connection."""
        pool = EndingPool(
            self._dsn if self.password is None else self._address,
            connection_class=PooledConnection,
            # With a minimum of one, a call that comes before that one is ready begins a second.
            min_size=0,
            max_size=size,
            kwargs={**self._settings, "connector": self},
            configure=partial(self._configure, on_connect),
            # By itself it doubles its pauses from a second, for five minutes. It gives up after one pause of ours, and
            # tries again. During a pause of over a second it tries once or twice more.
            reconnect_timeout=self._outage.first_pause(),
            reconnect_failed=self._try_again,
            open=False,
            name="spanmq",
        )
        self._pool = ref(pool)
        return pool

    def prepare(self) -> None:
        """Make the first connection of the pool, before it opens; raises ConnectionFailedError."""
        if not self._ready:
            self._ready.append(self._connect())

    def for_pool(self, connect: Callable[[], OwnConnection]) -> OwnConnection:
        """Return a connection for the pool, of those that are ready or from `connect`; raises what that raises."""
        with suppress(IndexError):
            return self._known(self._ready.pop(), self._of_pool)
        try:
            made = connect()
        except psycopg.Error as error:
            self.last_failure = str(error).strip()
            raise
        except BaseException as error:
            # One that was cancelled would refer, by psycopg's frames, to a connection half made.
            error.__traceback__ = None
            raise
        self.last_failure = ""
        return self._known(made, self._of_pool)

    def connect(self) -> OwnConnection:
        """Return a new connection for long use; raises ConnectionFailedError."""
        return self._known(self._connect(), self._others)

    def renew(self) -> None:
        """Make new connections from now on: the server of the present ones is silent, or has become read-only.

        Those that listen end. Others end when their statement or transaction does.
        """
        with self._lock:
            for connection in (*self._of_pool, *self._others):
                connection.patience.is_outdated = True

    def abandon(self, *, calls: bool) -> None:
        """End all connections for long use, and with `calls` those that wait for the end of a statement, too."""
        with self._lock:
            for connection in (*self._others, *(self._of_pool if calls else ())):
                connection.patience.is_abandoned = True

    def close(self) -> None:
        """Close a connection that the pool did not take."""
        while self._ready:
            self._ready.pop().close()

    def _configure(
        self, on_connect: Callable[[Connection[Any]], Any] | None, connection: Connection[Any]
    ) -> None:
        if on_connect is not None:
            on_connect(connection)
        self._outage.end()
        if (pool := self._pool()) is not None:
            pool.reconnect_timeout = self._outage.first_pause()

    def _try_again(self, pool: ConnectionPool[Any]) -> None:
        """Have the pool connect, and if that fails, once more after a pause; then this is called again."""
        # The pool has made the first attempt, which follows at once.
        pool.reconnect_timeout = self._outage.failed() or self._outage.first_pause()
        pool.check()

    def _connect(self) -> OwnConnection:
        try:
            return OwnConnection.connect(self._address(), **self._settings)
        except psycopg.OperationalError as error:
            raise errors.refused(str(error).strip()) from error
        except psycopg.ProgrammingError as error:  # from the parser of DSNs
            raise unreadable(error) from None
        except BaseException as error:
            error.__traceback__ = None  # as in for_pool()
            raise

    def _known(self, connection: OwnConnection, group: WeakSet[OwnConnection]) -> OwnConnection:
        connection.patience.seconds = self._answer_seconds
        connection.patience.on_silent = self.renew
        connection.patience.liveness = self._liveness
        with self._lock:
            group.add(connection)
        return connection

    def _address(self) -> str:
        """Return the DSN with the password of this moment."""
        if self.password is None:
            return self._dsn
        return in_place(partial(with_password, self._dsn, self.password))
