"""Sessions of other software: SQLAlchemy, Django, asyncpg, or any DB-API connection.

`Client(connection=session)` and `AsyncClient(connection=session)` choose the driver by themselves. Each call
is one `select … from schema.function(…)` on the session, within the transaction that is open there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from socket import gaierror
from typing import Any, Final, NoReturn

from spanmq.client.call import Shape, SqlCall, Style, is_missing_function, missing
from spanmq.client.options import kind_of
from spanmq.client.rows import Rows, read_time
from spanmq.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    InvalidTransactionError,
    SpanmqError,
    from_driver,
    lost,
)

Parameters = dict[str, str | None]
Values = Sequence[Sequence[Any]]

# PostgreSQL prints a time within to_jsonb in ISO 8601; these columns are times wherever they occur.
_TIMES: Final = frozenset({"vt", "scrape_time", "planned_until", "plan_from"})
_IDLE: Final = 0  # libpq's PQTRANS_IDLE, in psycopg and psycopg2

# What SQLAlchemy and Django raise by themselves for a transaction that has failed.
_ABORTED: Final = frozenset({"PendingRollbackError", "TransactionManagementError"})
_ROLL_BACK: Final = "Roll back, then repeat what you need."


def driver_of(session: object) -> Driver:
    """Return the way to run a call on a session of SQLAlchemy or Django, or on any DB-API connection."""
    origins = _origins(session)
    _check_postgresql(session, origins)
    if "asyncpg" in origins or _is_async(session):
        raise InvalidArgumentError(f"{kind_of(session)} is asynchronous: pass it to an AsyncClient")
    # First, because SQLAlchemy's `raw_connection()` is one too.
    if callable(getattr(session, "cursor", None)):
        return _Dbapi(session)
    if "sqlalchemy" in origins and callable(getattr(session, "execute", None)):
        return _Sqlalchemy(session)
    raise InvalidArgumentError(f"{kind_of(session)} is not a connection that a Client supports")


def driver_of_async(session: object) -> AsyncDriver:
    """Return the way to run a call on an asynchronous session of SQLAlchemy or a connection of asyncpg."""
    origins = _origins(session)
    _check_postgresql(session, origins)
    if "asyncpg" in origins and callable(getattr(session, "is_in_transaction", None)):
        return _Asyncpg(session)
    if "sqlalchemy" in origins and _is_async(session) and callable(getattr(session, "execute", None)):
        return _AsyncSqlalchemy(session)
    if ("sqlalchemy" in origins and not _is_async(session)) or callable(getattr(session, "cursor", None)):
        raise InvalidArgumentError(f"{kind_of(session)} is not asynchronous: pass it to a Client")
    raise InvalidArgumentError(f"{kind_of(session)} is not a connection that an AsyncClient supports")


class _Sqlalchemy:
    """A Session, scoped_session or Connection."""

    style: Final = Style.COLON

    def __init__(self, session: Any) -> None:
        self._session = session

    def fetch(self, statement: str, parameters: Parameters) -> Values:
        from sqlalchemy import text

        rows: Values = self._session.execute(text(statement), parameters).fetchall()
        return rows

    def execute(self, statement: str) -> None:
        from sqlalchemy import text

        self._session.execute(text(statement))

    def is_autocommit(self) -> bool:
        # A Session returns its Connection on request; a Connection has the driver's connection from the pool.
        connection = self._session.connection
        return _is_autocommit(
            (connection().connection if callable(connection) else connection).dbapi_connection
        )


class _AsyncSqlalchemy:
    """An AsyncSession, async_scoped_session or AsyncConnection."""

    style: Final = Style.COLON

    def __init__(self, session: Any) -> None:
        self._session = session

    async def fetch(self, statement: str, parameters: Parameters) -> Values:
        from sqlalchemy import text

        rows: Values = (await self._session.execute(text(statement), parameters)).fetchall()
        return rows

    async def execute(self, statement: str) -> None:
        from sqlalchemy import text

        await self._session.execute(text(statement))

    async def is_autocommit(self) -> bool:
        connection = getattr(self._session, "sync_connection", None) or (
            (await self._session.connection()).sync_connection
        )
        return _is_autocommit(connection.connection.dbapi_connection)


class _Dbapi:
    """A connection of Django, or of any driver that writes parameters as `%(name)s`."""

    style: Final = Style.DBAPI

    def __init__(self, session: Any) -> None:
        self._session = session

    def fetch(self, statement: str, parameters: Parameters) -> Values:
        cursor = self._session.cursor()
        try:
            cursor.execute(statement, parameters)
            # Rows by name are what the user's cursors may give.
            return [tuple(row.values()) if isinstance(row, Mapping) else row for row in cursor.fetchall()]
        finally:
            cursor.close()

    def execute(self, statement: str) -> None:
        cursor = self._session.cursor()
        try:
            cursor.execute(statement)
        finally:
            cursor.close()

    def is_autocommit(self) -> bool:
        if hasattr(self._session, "ensure_connection"):  # Django's
            self._session.ensure_connection()
            return _is_autocommit(self._session.connection)
        return _is_autocommit(self._session)


class _Asyncpg:
    """A connection of asyncpg."""

    style: Final = Style.DOLLAR

    def __init__(self, session: Any) -> None:
        self._session = session

    async def fetch(self, statement: str, parameters: Parameters) -> Values:
        if self._session.is_closed():
            # Asyncpg raises an error that it also uses where the connection is not lost.
            raise ConnectionFailedError("the connection is closed")
        rows: Values = await self._session.fetch(statement, *parameters.values())
        return rows

    async def execute(self, statement: str) -> None:
        await self._session.execute(statement)

    async def is_autocommit(self) -> bool:
        return not self._session.is_in_transaction()


# A call needs three things of a session: to fetch the rows of a statement, to execute one without rows, and to know
# whether each statement is a transaction.
Driver = _Sqlalchemy | _Dbapi
AsyncDriver = _AsyncSqlalchemy | _Asyncpg


def _is_autocommit(connection: object) -> bool:
    """Return whether each statement is a transaction; False after an explicit `begin`."""
    if getattr(connection, "autocommit", False) is not True:
        return False
    driver = getattr(connection, "driver_connection", connection)  # below SQLAlchemy's
    if callable(within := getattr(driver, "is_in_transaction", None)):  # asyncpg
        return not within()
    status = getattr(getattr(driver, "info", None), "transaction_status", _IDLE)
    return bool(status == _IDLE)


def rows_of(shape: Shape, values: Sequence[Sequence[Any]]) -> Rows:
    """Return rows from the JSON that a statement for other drivers returns."""
    if shape is Shape.NOTHING or not values:
        return Rows((), ())
    if shape is Shape.JSON:
        return Rows(("result",), [(_bytes(row[0]),) for row in values])
    first = json.loads(values[0][0])
    if not isinstance(first, dict):
        return Rows(("result",), [(json.loads(row[0]),) for row in values])
    records = []
    for record, *bodies in values:
        fields = {name: _field(name, value) for name, value in json.loads(record).items()}
        if shape is Shape.MESSAGES:
            fields["message"], fields["headers"] = (_bytes(body) for body in bodies)
        records.append(fields)
    columns = tuple(records[0])
    return Rows(columns, [tuple(fields.values()) for fields in records])


def _field(name: str, value: Any) -> Any:
    if isinstance(value, str) and (name in _TIMES or name.endswith("_at")):
        return read_time(value)
    return value


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def raise_typed(error: Exception, call: SqlCall[Any] | None = None) -> NoReturn:
    """Raise the typed error for one of a driver, or that error if none fits."""
    function, queue = (call.function, call.queue) if call else (None, None)
    if _is_unconnected(error):
        raise ConnectionFailedError(str(error).strip(), function=function, queue=queue) from error
    typed: SpanmqError | None = from_driver(error, function=function, queue=queue)
    # An error of operation without a number is the connection's; SQLAlchemy and Django keep DB-API's name.
    if typed is None and type(error).__name__ == "OperationalError":
        typed = lost(function=function, queue=queue, reason=str(error).strip())
    if type(error).__name__ in _ABORTED:
        typed = InvalidTransactionError(
            str(error), function=function, queue=queue, hint=_ROLL_BACK, code="transaction_aborted"
        )
    if typed is None:
        raise error
    if call is not None and is_missing_function(typed, call):
        typed = missing(None, call)
    raise typed from error


def _is_unconnected(error: Exception) -> bool:
    """Return whether a session could not connect, so that the call did not begin."""
    # Asyncpg raises these only while it connects.
    if isinstance(error, ConnectionRefusedError | FileNotFoundError | gaierror):
        return True
    if type(error).__module__.startswith("sqlalchemy."):
        # Without a statement it failed before the call; and the pool may have no free connection.
        return type(error).__name__ == "TimeoutError" or getattr(error, "statement", "") is None
    # Psycopg's, below Django's: only an attempt to connect sets it.
    return getattr(error.__cause__ or error, "pgconn", None) is not None


def _origins(session: object) -> set[str]:
    """Return the packages of the session's classes, so that subclasses count as their base class."""
    return {base.__module__.partition(".")[0] for base in type(session).__mro__}


def _check_postgresql(session: object, origins: set[str]) -> None:
    """Raise InvalidArgumentError for a session that says it is of another database, such as Django's default SQLite."""
    if "sqlalchemy" in origins:
        engine = session if hasattr(session, "dialect") else getattr(session, "bind", None)
        database = getattr(getattr(engine, "dialect", None), "name", None)
    else:
        database = "sqlite" if "sqlite3" in origins else getattr(session, "vendor", None)  # Django's
    if isinstance(database, str) and database != "postgresql":
        raise InvalidArgumentError(
            f"{kind_of(session)} is a connection to {database}, not to PostgreSQL",
            hint="The queues are in PostgreSQL; in Django, DATABASES says where.",
        )


def _is_async(session: object) -> bool:
    # AsyncSession, AsyncConnection, async_scoped_session
    return any(base.__name__.lower().startswith("async") for base in type(session).__mro__)
