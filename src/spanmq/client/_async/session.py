"""Calls inside a transaction of another library.

Sent messages become visible when that transaction commits, and never if it does not. Nothing here begins,
commits or rolls back a transaction, except on a session in autocommit: there a batch of several calls is a
transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final, NoReturn

from spanmq.client.call import PROBE, Call, Result, missing
from spanmq.client.drivers import AsyncDriver, driver_of_async, flavour_of, raise_typed, refused, rows_of
from spanmq.errors import SpanmqError
from spanmq.model import Flavour

_BEGIN: Final = "begin"
_COMMIT: Final = "commit"
_ROLLBACK: Final = "rollback"


class AsyncSessionLink:
    """Calls over an asynchronous session of other software."""

    def __init__(self, session: object, driver: AsyncDriver) -> None:
        self.connection = session
        self._driver = driver
        self._is_spanmq = False

    async def run(self, call: Call[Result]) -> Result:
        """Run one call."""
        if call.native and not self._is_spanmq and (found := await self._look(call)) != "spanmq":
            raise missing(found, call)
        try:
            values = await self._driver.fetch(call.statement(self._driver.style), call.parameters())
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        return call.read(rows_of(call.shape, values))

    async def run_all(self, calls: Iterator[Call[list[Result]]]) -> list[Result]:
        """Run several calls; all are made before the first runs, so that a bad one changes nothing."""
        made = list(calls)
        try:
            alone = len(made) > 1 and await self._driver.is_autocommit()
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, made[0])
        if not alone:
            return [result for call in made for result in await self.run(call)]
        try:
            await self._driver.execute(_BEGIN)
            results = [result for call in made for result in await self.run(call)]
            await self._driver.execute(_COMMIT)
        except BaseException as error:
            with suppress(Exception):  # the first error is the one to tell
                await self._driver.execute(_ROLLBACK)
            if isinstance(error, SpanmqError) or not isinstance(error, Exception):
                raise
            raise_typed(error)
        return results

    async def flavour(self) -> Flavour:
        """Return which schema the database contains, spanmq or PGMQ."""
        return await self._look()

    async def _look(self, call: Call[Any] | None = None) -> Flavour:
        try:
            values = await self._driver.fetch(PROBE, {})
        except Exception as error:  # noqa: BLE001, every driver has its own
            raise_typed(error, call)
        found = flavour_of(values)
        self._is_spanmq = found == "spanmq"
        return found

    def transaction(self) -> AbstractAsyncContextManager[NoReturn]:
        """Refuse: the transaction is the session's."""
        raise refused("begins no transaction")

    async def address(self) -> str:
        """Refuse: only psycopg's connections tell it."""
        raise refused("can't be used to install")


def adapt_async(session: object) -> AsyncSessionLink:
    """Return the way to run calls on a session; raises InvalidArgumentError for one that is not known."""
    return AsyncSessionLink(session, driver_of_async(session))
