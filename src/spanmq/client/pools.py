"""The pools of the two worlds under matching names."""

import asyncio
from contextlib import suppress
from typing import Any

from psycopg_pool import AsyncConnectionPool, ConnectionPool

__all__ = ["AsyncEndingPool", "EndingPool"]

EndingPool = ConnectionPool


class AsyncEndingPool(AsyncConnectionPool[Any]):
    """A pool that is closed when its event loop ends its tasks, as `asyncio.run` does at its end: it waits for each.

    A task of psycopg's pool that is cancelled while it connects or begins goes on to wait for work, for ever.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._is_ending = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:  # noqa: ASYNC109, psycopg's
        """Open the pool, as psycopg's does."""
        await super().open(wait, timeout)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end_with_loop(), name="spanmq pool")

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109, psycopg's
        """Close the pool, as psycopg's does."""
        self._is_ending.set()
        await super().close(timeout)
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def _end_with_loop(self) -> None:
        try:
            await self._is_ending.wait()
        except asyncio.CancelledError:
            with suppress(asyncio.CancelledError):  # of those tasks that have ended
                await super().close()
            raise
