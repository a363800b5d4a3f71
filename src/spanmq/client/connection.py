"""Functions of both clients on a connection of psycopg: its address, its state, the meaning of its errors.

And how values of PostgreSQL become Python's where psycopg's own loaders do not fit.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, AsyncCursor, BaseConnection, Cursor
from psycopg.abc import AdaptContext
from psycopg.adapt import Buffer, Loader, Transformer
from psycopg.conninfo import make_conninfo
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader

from spanmq import errors
from spanmq.client.call import TOO_LARGE, SqlCall
from spanmq.client.rows import EARLIEST, LATEST
from spanmq.client.silence import Patience

AnyCursor = Cursor[Any] | AsyncCursor[Any]

# Of a connection that is not the client's own.
_STRANGER: Final = Patience()
_READ_ONLY: Final = ("in_hot_standby", "default_transaction_read_only")
_LIMIT: Final = "select pg_catalog.set_config('statement_timeout', %s, true)"


def address_of(connection: BaseConnection[Any]) -> str:
    """Return the DSN of a connection, with the password, which psycopg's own DSN lacks."""
    return make_conninfo(connection.info.dsn, password=connection.info.password or None)


def is_alive(connection: BaseConnection[Any]) -> bool:
    """Return False if the server has hung up, without a round trip: a call would be of unknown outcome."""
    try:
        # The first reads the server's last words, the second the end that follows them.
        connection.pgconn.consume_input()
        connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True


def is_read_only(connection: BaseConnection[Any]) -> bool:
    """Return whether the server of a connection refuses all writes, as far as it has said.

    It reports both settings since PostgreSQL 14; a pooler may not pass them on. A transaction may be read-only by the
    wish of its caller.
    """
    said = [connection.info.parameter_status(name) for name in _READ_ONLY]
    return "on" in said or None in said


def is_in_block(connection: BaseConnection[Any]) -> bool:
    """Return whether a statement that follows takes effect only with a commit that comes later."""
    is_open = connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)
    return is_open or not connection.autocommit


def typed(
    error: psycopg.Error,
    connection: BaseConnection[Any],
    call: SqlCall[Any] | None = None,
    *,
    is_undone: bool = False,
) -> errors.SpanmqError:
    """Return the typed error for an error of psycopg.

    `is_undone` says that what was called has had no effect if the connection is lost.
    """
    function, queue = (call.function, call.queue) if call else (None, None)
    # An error that no server sent: psycopg may not have noticed yet that the connection is closed.
    if connection.closed or (isinstance(error, psycopg.OperationalError) and error.sqlstate is None):
        sqlstate, reason = error.sqlstate, error.diag.message_primary or str(error).strip()
        if sqlstate is None and (end := getattr(connection, "patience", _STRANGER).end) is not None:
            sqlstate, reason = end
        return errors.lost(
            function=function, queue=queue, sqlstate=sqlstate, reason=reason, is_undone=is_undone
        )
    if isinstance(error, psycopg.errors.InvalidTextRepresentation) and call is not None:
        _, _, count = (error.diag.message_primary or "").partition(TOO_LARGE)
        if count:
            too_large = errors.AnswerTooLargeError(
                "the messages are too many bytes for one answer", queue=queue
            )
            too_large.fitting = int(count.rstrip('"'))
            return too_large
    typed_error = errors.from_driver(error, function=function, queue=queue)
    if typed_error is not None:
        return typed_error
    if isinstance(error, psycopg.DataError):  # psycopg's own: it could not pass a value
        return errors.InvalidArgumentError(str(error), function=function, queue=queue)
    return errors.ServerError(str(error), function=function, queue=queue)


async def limit_statements(connection: AsyncConnection[Any], seconds: float) -> None:
    """Limit the time of each statement that follows in the transaction that is open."""
    try:
        await connection.execute(_LIMIT, [f"{seconds * 1000:g}"])
    except psycopg.Error as error:
        raise typed(error, connection, is_undone=True) from error


class JsonLoader(Loader):
    """Leave JSON as bytes: the codec reads it."""

    format = Format.BINARY

    def load(self, data: Buffer) -> bytes:
        """Read a value."""
        # The first byte is the version of jsonb's wire format, always 1.
        return bytes(data)[1:]


class ForeignJsonLoader(JsonLoader):
    """Return JSON in UTF-8, as a decoder expects, whatever the encoding of the caller's connection."""

    def load(self, data: Buffer) -> bytes:
        """Read a value."""
        encoding = self.connection.info.encoding if self.connection else "utf-8"
        return super().load(data).decode(encoding).encode()


class AsciiTextLoader(Loader):
    """Return a str: without an encoding (SQL_ASCII) psycopg returns bytes."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """Read a value."""
        return bytes(data).decode(errors="replace")


class TimeLoader(Loader):
    """Read any time that PostgreSQL has."""

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        self._usual = TimestamptzBinaryLoader(oid, context)

    def load(self, data: Buffer) -> datetime:
        """Read a value."""
        try:
            return self._usual.load(data)
        except psycopg.DataError:
            # Microseconds from the year 2000 on, the sign first.
            return EARLIEST if bytes(data)[0] & 0x80 else LATEST


def register_loaders(cursor: AnyCursor) -> None:
    """Have a cursor read JSON and texts, in whatever encoding the connection has, as calls need them."""
    encoding = cursor.connection.info.encoding
    foreign = encoding not in ("utf-8", "ascii")
    cursor.adapters.register_loader("jsonb", ForeignJsonLoader if foreign else JsonLoader)
    if encoding == "ascii":
        for kind in ("text", "varchar", "name"):
            cursor.adapters.register_loader(kind, AsciiTextLoader)


def fetch_any_times(cursor: AnyCursor) -> Sequence[Sequence[Any]]:
    """Return all rows of a result, with a slower loader: one of its times is outside Python's range."""
    result = cursor.pgresult
    if result is None:
        raise psycopg.DataError("the result is gone")
    cursor.adapters.register_loader("timestamptz", TimeLoader)
    reader = Transformer(cursor)
    reader.set_pgresult(result)
    return reader.load_rows(0, result.ntuples, tuple_row(cursor))


def columns_of(cursor: AnyCursor) -> tuple[str, ...]:
    """Return the names of a result's columns; not from `description`, which looks each type up."""
    result = cursor.pgresult
    if result is None:
        return ()
    return tuple((result.fname(number) or b"").decode() for number in range(result.nfields))
