"""Links to the database: over a pool, or over one connection, which may belong to the caller.

Every exception of psycopg becomes one of spanmq.errors here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from os import getpid
from time import monotonic
from typing import Any, Final, LiteralString

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from spanmq import errors
from spanmq.client._async.pool import AsyncConnector, AsyncOwnConnection
from spanmq.client._async.session import AsyncSessionLink
from spanmq.client.call import (
    PROBE,
    READ_ONLY,
    Result,
    Shape,
    SqlCall,
    Style,
    flavour_of,
    is_missing_function,
    missing,
    refuse_read_only,
)
from spanmq.client.concurrency import AsyncLock
from spanmq.client.connection import (
    address_of,
    columns_of,
    fetch_any_times,
    is_alive,
    is_in_block,
    is_read_only,
    register_loaders,
    typed,
)
from spanmq.client.current_handler import refuse_if_cancelled
from spanmq.client.rows import Rows
from spanmq.model import Flavour

# How often a call runs again that was undone for the sake of another transaction.
CONFLICTS_MAX: Final = 3


class AsyncPoolLink:
    """Calls over a pool, each in a transaction of its own.

    With a `connector` the pool is the client's own, and is opened at the first call; `address` is its DSN without
    the client's time limits. `durable` makes claims wait for the disk too.
    """

    def __init__(
        self,
        pool: AsyncConnectionPool[Any],
        *,
        connector: AsyncConnector | None,
        address: str | None,
        timeout: float,
        durable: bool,
        answer_bytes_max: int | None = None,
    ) -> None:
        self.pool = pool
        self.answer_bytes_max = answer_bytes_max
        self.connector = connector
        self._address = address
        self.calls = 0
        self._timeout = timeout
        self._durable = durable
        self.on_open: Callable[[], None] | None = None
        self._opened = connector is None
        self._opened_by = 0
        self._closed = False
        self._opening = AsyncLock()
        self._is_spanmq = False

    @property
    def connection(self) -> Any:
        """Refuse: each call has another one."""
        raise errors.NotPossibleError(
            "a client over a pool has no connection of its own",
            hint="`client.transaction()` returns a client with a connection.",
        )

    async def open(self) -> None:
        """Open the pool if it is ours; raises ConnectionFailedError at once if no server answers."""
        if self._closed:
            raise errors.ConnectionFailedError("the client is closed")
        connector = self.connector
        if self._opened or connector is None:
            if self._is_of_another_process():
                raise errors.NotPossibleError(
                    "the client was opened by another process, and processes can't share its connections",
                    hint="Create the client, or make its first call, after the fork.",
                )
            return
        async with self._opening:
            if self._opened:  # by another task, meanwhile
                return
            # A pool only logs why it cannot connect, and its clients time out after half a minute.
            await connector.prepare()
            try:
                await self.pool.open()
            except psycopg.Error as error:
                raise errors.ConnectionFailedError(str(error)) from error
            self._opened_by = getpid()
            self._opened = True
            if self.on_open is not None:
                self.on_open()
            if self._closed:  # by another task, meanwhile, when there was nothing to close yet
                await self.close()
                raise errors.ConnectionFailedError("the client is closed")

    @property
    def is_closed(self) -> bool:
        """Return whether no call can follow."""
        return self._closed

    async def close(self) -> None:
        """Close the pool if it is ours."""
        self._closed = True
        if self.connector is not None and not self._is_of_another_process():
            await self.pool.close()
            await self.connector.close()

    def _is_of_another_process(self) -> bool:
        """Return whether the process has forked since it was opened; not checked for a caller's pool."""
        return self._opened_by != 0 and self._opened_by != getpid()

    async def run(self, call: SqlCall[Result], *, counted: bool = True) -> Result:
        """Run one call in a transaction of its own; `counted` says that the user asked for it."""
        await self.open()
        if call.native and not self._is_spanmq and (flavour := await self.flavour()) != "spanmq":
            raise missing(flavour, call)
        try:
            result = await self._run_alone(call)
            # A call that finds no messages is idle.
            is_idle = call.idle or (call.shape is Shape.MESSAGES and not result)
            self.calls += counted and not is_idle
            return result
        except errors.SpanmqError as error:
            if not is_missing_function(error, call):
                raise
            raise missing(await self.flavour(), call) from error

    async def _run_alone(self, call: SqlCall[Result]) -> Result:
        """Run a call in a transaction of its own, and again where that was undone for the sake of another."""
        may_move = self.connector is not None and self.connector.may_move
        for _ in range(CONFLICTS_MAX):
            try:
                return await self._run_once(call)
            except errors.TransactionConflictError:
                pass
            except errors.ServerReadOnlyError:
                # `lend` has dropped the connection: a new one may reach a server that is writable.
                if not may_move:
                    raise
                may_move = False
        return await self._run_once(call)

    async def _run_once(self, call: SqlCall[Result]) -> Result:
        async with self.lend() as connection:
            relaxed = call.volatile and not self._durable
            return await execute(connection, call, relaxed=relaxed, bytes_max=self.answer_bytes_max)

    async def run_all(self, calls: Iterator[SqlCall[list[Result]]]) -> list[Result]:
        """Run several calls in one transaction; the next is made only when the last has run."""
        first = next(calls, None)
        if first is None:
            return []
        second = next(calls, None)
        if second is None:
            return await self.run(first)
        async with self.transaction() as link:
            results = await link.run(first)
            for call in chain([second], calls):
                more = await link.run(call)
                results += more
        return results

    async def flavour(self) -> Flavour:
        """Return which schema the database contains, spanmq or PGMQ."""
        await self.open()
        async with self.lend() as connection:
            flavour = await probe(connection)
        self._is_spanmq = flavour == "spanmq"
        return flavour

    async def check_writable(self) -> None:
        """Raise ServerReadOnlyError unless the server takes writes; the next call connects anew then."""
        await self.open()
        async with self.lend() as connection:
            refuse_read_only(await fetch(connection, READ_ONLY))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnectionLink]:
        """Begin a transaction; commit at the end, roll back if the block raises."""
        await self.open()
        self.calls += 1
        async with self.lend() as connection, in_transaction(connection):
            link = AsyncConnectionLink(
                connection, is_spanmq=self._is_spanmq, answer_bytes_max=self.answer_bytes_max
            )
            try:
                yield link
            finally:
                link.end()

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Lend a connection of the pool, in autocommit."""
        try:
            connection = await self._alive()
        except (PoolTimeout, PoolClosed) as error:
            failure = "" if self.connector is None else self.connector.last_failure
            raise errors.ConnectionFailedError(
                f"the pool returned no connection: {error}{failure and f'; the last attempt: {failure}'}",
                hint="The server is unreachable, or all connections are in use: see pool_size and timeout.",
            ) from error
        # One statement is one round trip then, not three. A pool that isn't ours gets it back as it was.
        restore = not connection.autocommit
        try:
            if restore:
                await connection.set_autocommit(True)
            yield connection
        except (errors.ServerReadOnlyError, psycopg.errors.ReadOnlySqlTransaction):
            if self.connector is not None and self.connector.may_move and is_read_only(connection):
                self.connector.renew()
            raise
        finally:
            try:
                if restore:
                    await connection.set_autocommit(False)
                if _is_outdated(connection):
                    await connection.close()
            except psycopg.Error:
                # It is broken, or was interrupted within a statement: the pool replaces it.
                await connection.close()
            finally:
                await self.pool.putconn(connection)

    async def _alive(self) -> AsyncConnection[Any]:
        """Yield a connection of the pool; of the client's own pool one that is still connected, to the same server."""
        # Not by the pool's own check, which pauses after each broken one, twice as long each time: after a
        # restart of the server eight of them would take longer than the time-out.
        deadline = monotonic() + self._timeout
        for _ in range(self.pool.max_size + 1):
            connection: AsyncConnection[Any] = await self.pool.getconn(deadline - monotonic())
            if self.connector is None or (is_alive(connection) and not _is_outdated(connection)):
                return connection
            await connection.close()
            # It replaces a broken one.
            await self.pool.putconn(connection)
        raise PoolTimeout("each new connection breaks at once")

    @asynccontextmanager
    async def dedicated(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Yield a connection for long use: a new one, or one of the caller's pool."""
        if self.connector is None:
            async with self.lend() as connection:
                yield connection
            return
        async with await self.connector.connect() as connection:
            try:
                yield connection
            except errors.ServerReadOnlyError:
                if self.connector.may_move:
                    self.connector.renew()
                raise

    async def address(self) -> str:
        """Return the DSN of the pool, without the client's time limits."""
        if self._address is not None:
            return self._address
        async with self.lend() as connection:
            return address_of(connection)


class AsyncConnectionLink:
    """Calls over one connection, in its open transaction. Commits only transactions that it began."""

    def __init__(
        self,
        connection: AsyncConnection[Any],
        *,
        is_spanmq: bool = False,
        answer_bytes_max: int | None = None,
    ) -> None:
        self._connection = connection
        self._answer_bytes_max = answer_bytes_max
        self._is_spanmq = is_spanmq
        self._is_over = False

    @property
    def connection(self) -> AsyncConnection[Any]:
        """The connection; raises NotPossibleError when it has gone back to its pool."""
        if self._is_over:
            raise errors.NotPossibleError(
                "the transaction of this client has ended, and another client uses its connection",
                hint="Call it within its `with` block, or call the client that it came from.",
            )
        return self._connection

    def end(self) -> None:
        """Return the connection to its pool."""
        self._is_over = True

    async def run(self, call: SqlCall[Result]) -> Result:
        """Run one call."""
        # To ask first spares the caller's transaction, which a missing function would abort.
        if call.native and not self._is_spanmq and (flavour := await self.flavour()) != "spanmq":
            raise missing(flavour, call)
        try:
            return await execute(self.connection, call, bytes_max=self._answer_bytes_max)
        except errors.SpanmqError as error:
            if not is_missing_function(error, call):
                raise
            if self.connection.info.transaction_status == TransactionStatus.INERROR:
                raise missing(None, call) from error
            raise missing(await self.flavour(), call) from error

    async def run_all(self, calls: Iterator[SqlCall[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        made = list(calls)
        if self.connection.autocommit and len(made) > 1:
            async with self.transaction():
                return [result for call in made for result in await self.run(call)]
        return [result for call in made for result in await self.run(call)]

    async def flavour(self) -> Flavour:
        """Return which schema the database contains, spanmq or PGMQ."""
        flavour = await probe(self.connection)
        self._is_spanmq = flavour == "spanmq"
        return flavour

    async def check_writable(self) -> None:
        """Raise ServerReadOnlyError unless the server takes writes."""
        refuse_read_only(await fetch(self.connection, READ_ONLY))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnectionLink]:
        """Set a savepoint; on a connection in autocommit, begin and commit a transaction."""
        if not self.connection.autocommit:
            # Else psycopg would begin a transaction here and commit it, which is the caller's to do.
            await self.flavour()
        async with in_transaction(self.connection):
            yield self

    async def address(self) -> str:
        """Return the DSN of the connection."""
        return address_of(self.connection)


# The connection of a client, on which calls run: each by itself, some as one (`run_all`), or in a transaction.
AsyncLink = AsyncPoolLink | AsyncConnectionLink | AsyncSessionLink


async def execute(
    connection: AsyncConnection[Any],
    call: SqlCall[Result],
    *,
    relaxed: bool = False,
    bytes_max: int | None = None,
) -> Result:
    """Run a call on a connection; `bytes_max` limits the bodies of its answer."""
    refuse_if_cancelled()
    if connection.closed:
        raise errors.ConnectionFailedError("the connection is closed", function=call.function)
    is_undone = is_in_block(connection)
    # A plain one: the caller's connection may have another cursor class or row factory.
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    register_loaders(cursor)
    statement = call.statement(Style.PSYCOPG, relaxed=relaxed, bytes_max=bytes_max)
    parameters = call.parameters()
    try:
        # Binary: a timestamptz as text could be read only in one of PostgreSQL's date styles.
        try:
            await cursor.execute(statement, parameters, binary=True)
        except psycopg.errors.FeatureNotSupported as error:
            is_idle = connection.info.transaction_status == TransactionStatus.IDLE
            if not (is_idle and errors.is_stale_plan(error)):
                raise
            # Prepared before an upgrade added columns to the function: refused before it ran. Psycopg cannot
            # discard a single statement, so this one is executed this way until the connection ends.
            await cursor.execute(statement, parameters, binary=True, prepare=False)
        try:
            values: Sequence[Sequence[Any]] = await cursor.fetchall()
        except psycopg.DataError:
            values = fetch_any_times(cursor)
        columns = columns_of(cursor)
    except psycopg.Error as error:
        raise typed(error, connection, call, is_undone=is_undone) from error
    except UnicodeEncodeError as error:
        lacking = error.object[error.start]
        raise errors.InvalidBodyError(
            f"the connection's encoding, {connection.info.encoding}, lacks the character {lacking!r}",
            hint="set client_encoding to 'UTF8'",
            function=call.function,
            queue=call.queue,
        ) from error
    return call.result(Rows(columns, values))


async def probe(connection: AsyncConnection[Any]) -> Flavour:
    """Return which schema the database contains, spanmq or PGMQ."""
    if connection.closed:
        raise errors.ConnectionFailedError("the connection is closed")
    return flavour_of(await fetch(connection, PROBE))


async def fetch(connection: AsyncConnection[Any], statement: LiteralString) -> list[tuple[Any, ...]]:
    """Return the rows of a statement that is not a call."""
    cursor = AsyncCursor(connection, row_factory=tuple_row)
    try:
        await cursor.execute(statement)
        return await cursor.fetchall()
    except psycopg.Error as error:
        raise typed(error, connection, is_undone=True) from error


@asynccontextmanager
async def in_transaction(connection: AsyncConnection[Any]) -> AsyncIterator[None]:
    """Begin and commit; what the block itself raises passes as it is."""
    began = ended = False
    try:
        async with connection.transaction():
            began = True
            yield
            if connection.closed:  # psycopg raises nothing then
                raise errors.lost(is_undone=True)
            if connection.info.transaction_status == TransactionStatus.INERROR:
                # The error was suppressed, but the caller must know: the server answers a commit with a
                # rollback, and psycopg raises nothing.
                raise errors.InvalidTransactionError(
                    "a call in the transaction has failed: the transaction had no effect",
                    hint="A transaction() around a call that may fail is a savepoint.",
                    sqlstate="25P02",
                    code="transaction_aborted",
                )
            ended = True
    except psycopg.Error as error:
        if not began and connection.closed:
            raise errors.ConnectionFailedError(str(error)) from error
        if began and not ended:
            raise
        raise typed(error, connection, is_undone=not began) from error


def _is_outdated(connection: AsyncConnection[Any]) -> bool:
    return isinstance(connection, AsyncOwnConnection) and connection.patience.is_outdated
