"""PostgreSQL through ADBC: what a query gives as Arrow batches, and batches into a table.

By the driver's own handles, not by its DBAPI: that one imports pyarrow.dataset, which imports pandas, and so
costs each new Python worker 0.4 s of processor time.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
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

from spanmq.errors import ConnectionFailedError

# Bytes of one Arrow batch; ADBC's default of 16 MB makes batches that cross the socket to the JVM in one
# piece.
BATCH_BYTES: Final = 4_000_000


# At most one.
_idle: Final[list[Connection]] = []


class StatementError(Exception):
    """What the server, or the way to it, said of a statement."""


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """Yield a connection for a block; raises ConnectionFailedError.

    The process keeps the last connection for its next task: connecting costs as much as reading 10,000 rows.
    """
    connection: Connection | None = None
    # In a forked process the parent's stays as it is.
    if _idle and _idle[0].process == os.getpid():
        connection = _idle.pop()
        if connection.dsn != dsn or not connection.is_alive():
            connection.close()
            connection = None
    connection = connection or Connection(dsn)
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
    """A session in which each statement is a transaction of its own."""

    def __init__(self, dsn: str) -> None:
        """Connect; raises ConnectionFailedError."""
        self.dsn, self.process = dsn, os.getpid()
        try:
            self._database = adbc_driver_postgresql.connect(dsn)
            try:
                self._connection = AdbcConnection(self._database)
            except Error:
                self._database.close()
                raise
        except Error as error:
            raise ConnectionFailedError(str(error).strip()) from error

    def close(self) -> None:
        """Close the session."""
        self._connection.close()
        self._database.close()

    def query(self, statement: str) -> Generator[pyarrow.RecordBatch]:
        """Yield the result of a query as it arrives; raises StatementError."""
        try:
            with AdbcStatement(self._connection) as handle:
                size = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
                handle.set_options(**{size: str(BATCH_BYTES)})
                handle.set_sql_query(statement)
                stream, _ = handle.execute_query()
                with pyarrow.RecordBatchReader.from_stream(stream) as batches:
                    yield from batches
        # Errors while rows arrive are raised by Arrow, as its own classes.
        except (Error, pyarrow.ArrowException, OSError) as error:
            raise StatementError(str(error)) from error

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
                handle.execute_update()
        except Error as error:
            raise StatementError(str(error)) from error
