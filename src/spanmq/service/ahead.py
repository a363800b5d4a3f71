"""When the next message becomes visible in the queues that requests wait for: one statement asks for many
queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final

from spanmq.client.concurrency import Due
from spanmq.errors import SpanmqError

# Limits the time of one statement: a waiting request polls for messages only after the answer.
QUEUES_MAX: Final = 200

Ask = Callable[[Sequence[str]], Awaitable[list[float | None]]]


class Ahead:
    """Runs one statement at a time; queues that are added meanwhile are asked for together in the next one."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._wanted: dict[str, asyncio.Future[Due]] = {}
        self._job: asyncio.Task[None] | None = None

    async def of(self, queue: str) -> Due:
        """Return when the next message of a queue becomes visible; None if that cannot be determined."""
        if queue not in self._wanted:
            self._wanted[queue] = asyncio.get_running_loop().create_future()
        due = self._wanted[queue]
        if self._job is None:
            # It asks on behalf of many requests, so it must not run in the context of the one that began it.
            self._job = asyncio.create_task(self._run(), context=Context())
        return await asyncio.shield(due)

    async def _run(self) -> None:
        try:
            while self._wanted:
                wanted, self._wanted = self._wanted, {}
                asked = list(wanted.items())
                for first in range(0, len(asked), QUEUES_MAX):
                    await self._answer(dict(asked[first : first + QUEUES_MAX]))
        finally:
            # Nothing is awaited after the last check for waiting requests, so none can have been added since.
            self._job = None

    async def _answer(self, wanted: dict[str, asyncio.Future[Due]]) -> None:
        found: Sequence[float | None] = [None] * len(wanted)
        try:
            found = await self._ask(list(wanted))
        except SpanmqError:
            pass  # the poll that follows reports the error
        finally:
            for due, seconds in zip(wanted.values(), found, strict=True):
                if not due.done():
                    due.set_result(Due(seconds))
