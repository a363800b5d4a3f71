"""Regular expressions and JSON paths of requests: each may run for a second, and all together use half of the pool."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from spanmq.client import AsyncClient
from spanmq.client.calls import limit_statements
from spanmq.errors import InvalidArgumentError, StatementCancelledError
from spanmq.model import Redriven
from spanmq_service.guard.caller import Caller

SECONDS: Final = 1.0
Result = TypeVar("Result")
Trial = Callable[["AsyncClient"], Awaitable[object]]
_CANCELLED: Final = "57014"


class CostlySearches:
    """Lends the client for calls with patterns: one token may use a quarter of the pool, all together half.

    Further calls wait, those of one token in order.
    """

    def __init__(self, client: AsyncClient, pool_size: int) -> None:
        self._client = client
        self._searches = asyncio.Semaphore(max(1, pool_size // 2))
        self._of_one = max(1, pool_size // 4)
        self._of_callers: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def searching(
        self, caller: Caller | None, filters: Mapping[str, Any]
    ) -> AsyncIterator[AsyncClient]:
        """Lend a client for a search of dead letters.

        If the filters have a pattern, a statement may take a second; raises InvalidArgumentError if it does.
        """
        if not (filters["error"] or filters["where"]):
            yield self._client
            return
        async with self._slot(caller), self._limited("the search") as client:
            yield client

    @asynccontextmanager
    async def acting(
        self, caller: Caller | None, *patterns: str | None, trial: Trial | None = None
    ) -> AsyncIterator[AsyncClient]:
        """Try patterns, and the act without its effect, for a second each, then lend the client.

        Raises InvalidArgumentError.
        """
        tried = [pattern for pattern in patterns if pattern is not None]
        if not tried and trial is None:
            yield self._client
            return
        async with self._slot(caller):
            for pattern in tried:
                async with self._limited("the pattern") as client:
                    await client.dead_letters.list(error=pattern, limit=0)
            if trial is not None:
                async with self._limited("the search") as client:
                    await trial(client)
            yield self._client

    async def redrive(self, caller: Caller | None, queue: str, **settings: Any) -> list[Redriven]:
        """Redrive dead letters as the client does, after a trial."""
        return await self._act(
            caller, settings, lambda client, settings: client.dead_letters.redrive(queue, **settings)
        )

    async def discard(self, caller: Caller | None, queue: str, **settings: Any) -> int:
        """Delete dead letters as the client does, after a trial."""
        return await self._act(
            caller, settings, lambda client, settings: client.dead_letters.discard(queue, **settings)
        )

    async def _act(
        self,
        caller: Caller | None,
        settings: dict[str, Any],
        act: Callable[[AsyncClient, dict[str, Any]], Awaitable[Result]],
    ) -> Result:
        trial = (
            None if settings["where"] is None else lambda client: act(client, settings | {"dry_run": True})
        )
        async with self.acting(caller, settings["error"], trial=trial) as client:
            return await act(client, settings)

    @asynccontextmanager
    async def _slot(self, caller: Caller | None) -> AsyncIterator[None]:
        name = "" if caller is None else caller.name
        own = self._of_callers.get(name)
        if own is None:
            own = self._of_callers[name] = asyncio.Semaphore(self._of_one)
        async with own, self._searches:
            yield

    @asynccontextmanager
    async def _limited(self, what: str) -> AsyncIterator[AsyncClient]:
        try:
            async with self._client.transaction() as client:
                await limit_statements(client.connection, SECONDS)
                yield client
        except StatementCancelledError as error:
            if error.sqlstate != _CANCELLED:
                raise
            raise InvalidArgumentError(
                f"{what} takes longer than {SECONDS:g} second",
                detail="Use a simpler pattern, or select fewer with category, error_class, since and until.",
                code="invalid_pattern",
            ) from error
