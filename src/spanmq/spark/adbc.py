"""PostgreSQL through ADBC: what a query gives as Arrow batches, and batches into a table.

By the driver's own handles, not by its DBAPI: that one imports pyarrow.dataset, which imports pandas, and so
costs each new Python worker 0.4 s of processor time.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Final, Self

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

# Of one Arrow batch; ADBC's default of 16 MB makes batches that cross the socket to the JVM in one piece.
BATCH_BYTES: Final = 4_000_000


class StatementError(Exception):
    """What the server, or the way to it, said of a statement."""


class Connection:
    """A session in which each statement is a transaction of its own."""

    def __init__(self, dsn: str) -> None:
        """Connect; raises ConnectionFailedError."""
        try:
            self._database = adbc_driver_postgresql.connect(dsn)
            try:
                self._connection = AdbcConnection(self._database)
            except Error:
                self._database.close()
                raise
        except Error as error:
            raise ConnectionFailedError(str(error).strip()) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._database.close()

    def query(self, statement: str) -> Generator[pyarrow.RecordBatch]:
        """Give what a query gives, as it comes; raises StatementError."""
        try:
            with AdbcStatement(self._connection) as handle:
                size = adbc_driver_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value
                handle.set_options(**{size: str(BATCH_BYTES)})
                handle.set_sql_query(statement)
                stream, _ = handle.execute_query()
                with pyarrow.RecordBatchReader.from_stream(stream) as batches:
                    yield from batches
        # What fails while rows come passes through Arrow, which says so in its own classes.
        except (Error, pyarrow.ArrowException, OSError) as error:
            raise StatementError(str(error)) from error

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
