"""PostgreSQL through ADBC: what a query gives as Arrow batches, and batches into a table.

By the driver's own handles, not by its DBAPI: that one imports pyarrow.dataset, which imports pandas, and so
costs each new Python worker 0.4 s of processor time.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Final

import adbc_driver_postgresql
import pyarrow
from adbc_driver_manager import (
    INGEST_OPTION_MODE,
    INGEST_OPTION_MODE_APPEND,
    INGEST_OPTION_TARGET_TABLE,
    AdbcConnection,
    AdbcStatement,
    Error,
    StatementOptions,
)
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from spanmq.client.calls import ASK_SECONDS, PAUSE_SECONDS_MAX, Question, asked_at, with_timeouts
from spanmq.errors import ConnectionFailedError

# Bytes of one Arrow batch; ADBC's default of 16 MB makes batches that cross the socket to the JVM in one
# piece.
BATCH_BYTES: Final = 4_000_000


# At most one.
_idle: Final[list[Connection]] = []
# Held while a connection is made, whose socket is the one that is new then.
_opening: Final = Lock()
FILES: Final = Path("/dev/fd")


class StatementError(Exception):
    """An error of the server, or of the connection, for a statement."""


@contextmanager
def connected(dsn: str, *, pooler: bool = False) -> Iterator[Connection]:
    """Yield a connection for a block; raises ConnectionFailedError. With a `pooler` nothing is set at its start.

    The process keeps the last connection for its next task: connecting costs as much as reading 10,000 rows.
    """
    connection: Connection | None = None
    # In a forked process the parent's stays as it is.
    if _idle and _idle[0].process == os.getpid():
        connection = _idle.pop()
        if (connection.dsn, connection.pooler) != (dsn, pooler) or not connection.is_alive():
            connection.close()
            connection = None
    connection = connection or Connection(dsn, pooler=pooler)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    if _idle:
        connection.close()
    else:
        _idle.append(connection)


class Connection:
    """A session in which each statement is a transaction of its own.

    A statement ends with an error when its server takes no new connection either.
    """

    def __init__(self, dsn: str, *, pooler: bool = False) -> None:
        """Connect; raises ConnectionFailedError."""
        self.dsn, self.pooler, self.process = dsn, pooler, os.getpid()
        try:
            address = with_timeouts(dsn, None, pooler=pooler)
            self._database = adbc_driver_postgresql.connect(address)
            try:
                with _opening:
                    before = _sockets()
                    self._connection = AdbcConnection(self._database)
                    self._watch = ConnectionWatch(address, _sockets() - before)
            except Error:
                self._database.close()
                raise
        except Error as error:
            raise ConnectionFailedError(str(error).strip()) from error

    def close(self) -> None:
        """Close the session."""
        self._watch.close()
        self._connection.close()
        self._database.close()

    def query(self, statement: str) -> Generator[pyarrow.RecordBatch]:
        """Yield the result of a query as it arrives; raises StatementError."""
        try:
            with AdbcStatement(self._connection) as handle:
                size = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
                handle.set_options(**{size: str(BATCH_BYTES)})
                handle.set_sql_query(statement)
                with self._watch.limit():
                    stream, _ = handle.execute_query()
                with pyarrow.RecordBatchReader.from_stream(stream) as batches:
                    while (batch := self._next(batches)) is not None:
                        yield batch
        # Errors while rows arrive are raised by Arrow, as its own classes.
        except (Error, pyarrow.ArrowException, OSError) as error:
            raise self._watch.explained(error) from error

    def _next(self, batches: pyarrow.RecordBatchReader) -> pyarrow.RecordBatch | None:
        with self._watch.limit(), suppress(StopIteration):
            return batches.read_next_batch()
        return None

    def is_alive(self) -> bool:
        """Return whether the server still answers."""
        try:
            return len(list(self.query("select 1::bigint"))) == 1
        except StatementError:
            return False

    def append(self, schema: str, table: str, rows: pyarrow.Table) -> None:
        """Copy rows into a table: all or none; raises StatementError."""
        try:
            with AdbcStatement(self._connection) as handle:
                handle.set_options(
                    **{
                        INGEST_OPTION_TARGET_TABLE: table,
                        INGEST_OPTION_MODE: INGEST_OPTION_MODE_APPEND,
                        StatementOptions.INGEST_TARGET_DB_SCHEMA.value: schema,
                    }
                )
                handle.bind_stream(rows)
                with self._watch.limit():
                    handle.execute_update()
        except Error as error:
            raise self._watch.explained(error) from error


class ConnectionWatch:
    """Ends the calls of a connection whose server is silent: the driver has no limit for them, and can't be stopped.

    `address` is the DSN, and `files` are the sockets that were opened beside the connection's.
    """

    def __init__(self, address: str, files: set[tuple[int, int]]) -> None:
        self._is_silent = False
        self._sockets: list[socket.socket] = []
        # "" without TCP: there is nothing between the two that could be silent.
        self._asked = ""
        ports = _ports_of(address)
        for file, _ in files:
            with suppress(OSError):
                opened = socket.socket(fileno=os.dup(file))
                peer = opened.getpeername()
                # Another thread may have opened the others.
                if opened.family in (socket.AF_INET, socket.AF_INET6) and str(peer[1]) in ports:
                    self._asked = asked_at(address, host=peer[0], hostaddr=peer[0], port=peer[1])
                    self._sockets.append(opened)
                else:
                    opened.close()

    @contextmanager
    def limit(self) -> Iterator[None]:
        """Watch for the block, in which the driver waits for the server."""
        if not self._asked:
            yield
            return
        is_over = Event()
        Thread(target=self._ask, args=(is_over,), name="spanmq asking", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()

    def explained(self, error: Exception) -> StatementError:
        """Return the error to raise for one of the driver."""
        if self._is_silent:
            return StatementError(f"the server did not answer, nor did it take a new connection: {error}")
        return StatementError(str(error))

    def close(self) -> None:
        """Close the sockets that it watches."""
        for opened in self._sockets:
            opened.close()

    def _ask(self, is_over: Event) -> None:
        pause = ASK_SECONDS
        while not is_over.wait(pause):
            question = Question(self._asked)
            question.ask(str)
            if question.is_silent and not is_over.is_set():
                self._is_silent = True
                for opened in self._sockets:
                    with suppress(OSError):
                        opened.shutdown(socket.SHUT_RDWR)
                return
            pause = min(pause * 2, PAUSE_SECONDS_MAX)


def _ports_of(address: str) -> list[str]:
    """Return the ports that a DSN names, or the environment."""
    defaults = {option.keyword: option.val or option.compiled for option in Conninfo.get_defaults()}
    port = conninfo_to_dict(address).get("port") or (defaults.get(b"port") or b"").decode()
    return str(port).split(",")


def _sockets() -> set[tuple[int, int]]:
    """Return the numbers of this process's open sockets, each with what tells it from others of that number."""
    sockets = set()
    with suppress(OSError):
        for path in FILES.iterdir():
            file = int(path.name)
            with suppress(OSError):
                status = os.fstat(file)
                if stat.S_ISSOCK(status.st_mode):
                    sockets.add((file, status.st_ino))
    return sockets
