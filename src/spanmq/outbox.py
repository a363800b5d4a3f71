"""Calls inside a transaction of other software: SQLAlchemy, Django, asyncpg, or any DB-API connection.

`Client(connection=session)` and `AsyncClient(connection=session)` find the right way by themselves. Each call
is one `select … from pgmq.function(…)` on what was given, within the transaction that is open there: what it
sends is visible when that transaction commits, and never if it doesn't. Nothing here begins, commits or rolls
back.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from spanmq.call import PROBE, Call, Result, Rows, Shape, Style, is_missing_function, missing
from spanmq.errors import (
    ConnectionFailedError,
    InvalidArgumentError,
    NotPermittedError,
    SpanmqError,
    from_driver,
    lost,
)
from spanmq.far_time import read_time
from spanmq.footing import kind_of
from spanmq.message import Flavour

Parameters = dict[str, str | None]
Fetch = Callable[[str, Parameters], Sequence[Sequence[Any]]]
FetchAsync = Callable[[str, Parameters], Awaitable[Sequence[Sequence[Any]]]]

# PostgreSQL prints a time within to_jsonb in ISO 8601; these columns are times wherever they occur.
_TIMES: Final = frozenset({"vt", "scrape_time", "planned_until", "plan_from"})


class SessionLink:
    """Calls over a session of other software; the twin of AsyncSessionLink."""

    def __init__(self, session: object, fetch: Fetch, style: Style) -> None:
        self.connection = session
        self._fetch = fetch
        self._style = style
        self._is_spanmq = False

    def run(self, call: Call[Result]) -> Result:
        """Run one call."""
        if call.native and not self._is_spanmq and (found := self.flavour()) != "spanmq":
            raise missing(found, call)
        try:
            values = self._fetch(call.statement(self._style), call.parameters())
        except Exception as error:  # noqa: BLE001, every driver has its own
            _raise_typed(error, call)
        return call.read(_rows(call.shape, values))

    def run_all(self, calls: Iterator[Call[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        return [result for call in list(calls) for result in self.run(call)]

    def flavour(self) -> Flavour:
        """Look at what the database holds."""
        found = _flavour(self._fetch(PROBE, {}))
        self._is_spanmq = found == "spanmq"
        return found

    def transaction(self) -> AbstractContextManager[NoReturn]:
        """Refuse: the transaction is the session's."""
        raise _not_ours("begins no transaction")

    def address(self) -> str:
        """Refuse: only psycopg's connections tell it."""
        raise _not_ours("can't be used to install")


class AsyncSessionLink:
    """Calls over an asynchronous session of other software."""

    def __init__(self, session: object, fetch: FetchAsync, style: Style) -> None:
        self.connection = session
        self._fetch = fetch
        self._style = style
        self._is_spanmq = False

    async def run(self, call: Call[Result]) -> Result:
        """Run one call."""
        if call.native and not self._is_spanmq and (found := await self.flavour()) != "spanmq":
            raise missing(found, call)
        try:
            values = await self._fetch(call.statement(self._style), call.parameters())
        except Exception as error:  # noqa: BLE001, every driver has its own
            _raise_typed(error, call)
        return call.read(_rows(call.shape, values))

    async def run_all(self, calls: Iterator[Call[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        return [result for call in list(calls) for result in await self.run(call)]

    async def flavour(self) -> Flavour:
        """Look at what the database holds."""
        found = _flavour(await self._fetch(PROBE, {}))
        self._is_spanmq = found == "spanmq"
        return found

    def transaction(self) -> AbstractAsyncContextManager[NoReturn]:
        """Refuse: the transaction is the session's."""
        raise _not_ours("begins no transaction")

    async def address(self) -> str:
        """Refuse: only psycopg's connections tell it."""
        raise _not_ours("can't be used to install")


class _Cursor(Protocol):
    def execute(self, statement: str, parameters: Parameters) -> object: ...
    def fetchall(self) -> Sequence[Sequence[Any]]: ...
    def close(self) -> None: ...


def adapt(session: object) -> SessionLink:
    """Find the way to run a call on a session of SQLAlchemy or Django, or on any DB-API connection."""
    origins = _origins(session)
    if "asyncpg" in origins or _is_async(session):
        raise InvalidArgumentError(f"{kind_of(session)} is asynchronous: give it to an AsyncClient")
    if "sqlalchemy" in origins:
        return SessionLink(session, partial(_fetch_sqlalchemy, session), Style.COLON)
    if callable(getattr(session, "cursor", None)):
        return SessionLink(session, partial(_fetch_cursor, session), Style.DBAPI)
    raise InvalidArgumentError(f"{kind_of(session)} is no connection that a Client knows")


def adapt_async(session: object) -> AsyncSessionLink:
    """Find the way to run a call on an asynchronous session of SQLAlchemy or a connection of asyncpg."""
    origins = _origins(session)
    if "asyncpg" in origins:
        return AsyncSessionLink(session, partial(_fetch_asyncpg, session), Style.DOLLAR)
    if "sqlalchemy" in origins and _is_async(session):
        return AsyncSessionLink(session, partial(_fetch_sqlalchemy_async, session), Style.COLON)
    if "sqlalchemy" in origins or callable(getattr(session, "cursor", None)):
        raise InvalidArgumentError(f"{kind_of(session)} is not asynchronous: give it to a Client")
    raise InvalidArgumentError(f"{kind_of(session)} is no connection that an AsyncClient knows")


def _fetch_sqlalchemy(session: Any, statement: str, parameters: Parameters) -> Sequence[Sequence[Any]]:
    from sqlalchemy import text

    rows: Sequence[Sequence[Any]] = session.execute(text(statement), parameters).fetchall()
    return rows


async def _fetch_sqlalchemy_async(
    session: Any, statement: str, parameters: Parameters
) -> Sequence[Sequence[Any]]:
    from sqlalchemy import text

    rows: Sequence[Sequence[Any]] = (await session.execute(text(statement), parameters)).fetchall()
    return rows


def _fetch_cursor(session: Any, statement: str, parameters: Parameters) -> Sequence[Sequence[Any]]:
    cursor: _Cursor = session.cursor()
    try:
        cursor.execute(statement, parameters)
        return cursor.fetchall()
    finally:
        cursor.close()


async def _fetch_asyncpg(session: Any, statement: str, parameters: Parameters) -> Sequence[Sequence[Any]]:
    if session.is_closed():
        # Asyncpg says so by an error that it also raises for what is no loss of a connection.
        raise ConnectionFailedError("the connection is closed")
    rows: Sequence[Sequence[Any]] = await session.fetch(statement, *parameters.values())
    return rows


def _rows(shape: Shape, values: Sequence[Sequence[Any]]) -> Rows:
    """Make rows of the JSON texts that a statement for other drivers gives."""
    if shape is Shape.NOTHING or not values:
        return Rows((), ())
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


def _flavour(values: Sequence[Sequence[Any]]) -> Flavour:
    spanmq, pgmq = values[0]
    return "spanmq" if spanmq else "upstream" if pgmq else "none"


def _raise_typed(error: Exception, call: Call[Any]) -> NoReturn:
    typed: SpanmqError | None = from_driver(error, function=call.function, queue=call.queue)
    # An error of operation without a number is the connection's; SQLAlchemy and Django keep DB-API's name.
    if typed is None and type(error).__name__ == "OperationalError":
        typed = lost(function=call.function, queue=call.queue)
    if typed is None:
        raise error
    if is_missing_function(typed, call):
        typed = missing(None, call)
    raise typed from error


def _not_ours(what: str) -> NotPermittedError:
    return NotPermittedError(
        f"a client on a session of other software {what}",
        hint="Use the session itself, or a client with a DSN.",
    )


def _origins(session: object) -> set[str]:
    """Give the packages of the session's classes: a subclass of the user's is what it derives from."""
    return {base.__module__.partition(".")[0] for base in type(session).__mro__}


def _is_async(session: object) -> bool:
    # AsyncSession, AsyncConnection, async_scoped_session
    return any(base.__name__.lower().startswith("async") for base in type(session).__mro__)
