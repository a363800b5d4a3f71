"""When something falls due in the queues that are waited for: asked for many of them by one statement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final

from spanmq.client._async.listener import Due
from spanmq.errors import SpanmqError

# By one statement, so that none takes long: who asks looks for messages only after the answer.
QUEUES_MAX: Final = 200

Ask = Callable[[Sequence[str]], Awaitable[list[float | None]]]


class Ahead:
    """One question is under way at a time; who comes meanwhile is asked for with the others, after it."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._wanted: dict[str, asyncio.Future[Due]] = {}
        self._job: asyncio.Task[None] | None = None

    async def of(self, queue: str) -> Due:
        """Ask when something of a queue falls due; what can't be asked is not known."""
        if queue not in self._wanted:
            self._wanted[queue] = asyncio.get_running_loop().create_future()
        due = self._wanted[queue]
        if self._job is None:
            # It asks for many: it must not belong to the one that began it.
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
            # Nothing is awaited since nobody was found to ask: nobody can have come unserved.
            self._job = None

    async def _answer(self, wanted: dict[str, asyncio.Future[Due]]) -> None:
        found: Sequence[float | None] = [None] * len(wanted)
        try:
            found = await self._ask(list(wanted))
        except SpanmqError:
            pass  # The look that follows says what is wrong.
        finally:
            for due, seconds in zip(wanted.values(), found, strict=True):
                if not due.done():
                    due.set_result(Due(seconds))
