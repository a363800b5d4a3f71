"""Calls inside a transaction of another library.

Sent messages become visible when that transaction commits, and never if it does not. Nothing here begins or
commits one, except on a session in autocommit, where several calls that belong together are a transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Final

from spanmq.client.call import PROBE, READ_ONLY, Result, SqlCall, flavour_of, missing, refuse_read_only
from spanmq.client.current_handler import refuse_if_cancelled
from spanmq.client.drivers import AsyncDriver, driver_of_async, raise_typed, rows_of
from spanmq.errors import NotPossibleError
from spanmq.model import Flavour

# Unique: to roll back to a savepoint that could not be set must not reach an outer one of its name.
_SAVEPOINTS: Final = count(1)


class AsyncSessionLink:
    """Calls over an asynchronous session of other software."""

    def __init__(self, session: object, driver: AsyncDriver) -> None:
        self.connection = session
        self._driver = driver
        self._is_spanmq = False
        self._has_begun = False

    async def run(self, call: SqlCall[Result]) -> Result:
        """Run one call."""
        refuse_if_cancelled()
        if call.native and not self._is_spanmq and (flavour := await self.flavour(call)) != "spanmq":
            raise missing(flavour, call)
        try:
            values = await self._driver.fetch(call.statement(self._driver.style), call.parameters())
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        return call.result(rows_of(call.shape, values))

    async def run_all(self, calls: Iterator[SqlCall[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        made = list(calls)
        if len(made) > 1 and await self._is_autocommit():
            async with self.transaction():
                return [result for call in made for result in await self.run(call)]
        return [result for call in made for result in await self.run(call)]

    async def flavour(self, call: SqlCall[Any] | None = None) -> Flavour:
        """Return which schema the database contains, spanmq or PGMQ; errors name the `call` that needs it."""
        try:
            values = await self._driver.fetch(PROBE, {})
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        flavour = flavour_of(values)
        self._is_spanmq = flavour == "spanmq"
        return flavour

    async def check_writable(self) -> None:
        """Raise ServerReadOnlyError unless the server takes writes."""
        try:
            values = await self._driver.fetch(READ_ONLY, {})
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)
        refuse_read_only(values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSessionLink]:
        """Set a savepoint; on a session in autocommit, begin and commit a transaction."""
        begins = await self._is_autocommit()
        savepoint = f"savepoint spanmq_{next(_SAVEPOINTS)}"
        try:
            if begins:
                self._has_begun = True
                await self._execute("begin")
            await self._execute(savepoint)
            yield self
            # In a transaction that has failed this is an error; a commit would be a silent rollback.
            await self._execute(f"release {savepoint}")
            if begins:
                await self._execute("commit")
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                await self._driver.execute("rollback" if begins else f"rollback to {savepoint}")
            raise
        finally:
            if begins:
                self._has_begun = False

    async def _is_autocommit(self) -> bool:
        try:
            # After a `begin` some drivers do not know that there is a transaction.
            return not self._has_begun and await self._driver.is_autocommit()
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)

    async def _execute(self, statement: str) -> None:
        try:
            await self._driver.execute(statement)
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error)

    async def address(self) -> str:
        """Refuse: only psycopg's connections tell it."""
        raise NotPossibleError(
            "a client on a session of other software can't be used to install",
            hint="Use a client with a DSN.",
        )


def adapt_async(session: object) -> AsyncSessionLink:
    """Return the way to run calls on a session; raises InvalidArgumentError for one that is not known."""
    return AsyncSessionLink(session, driver_of_async(session))
