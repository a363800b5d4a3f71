"""Long polls: any number of requests that wait, without a connection of the database for any of them.

The waiters of a queue stand in one line. One task a line is woken by announcements, which all come over one
LISTEN connection, or by the clock, for not all that becomes visible is announced; it receives for the first
in line, and again as long as something comes. So looks cost the same for one waiter and for a thousand.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final

from spanmq.client_async import announcements
from spanmq.errors import SpanmqError
from spanmq.listen_async import FIRST_POLL_SECONDS

if TYPE_CHECKING:
    from spanmq.client_async import AsyncClient
    from spanmq.message import Message

logger = logging.getLogger("spanmq.service")

POLL_SECONDS: Final = 0.5
# All lines together: with many queues waited for, each is looked at less often.
LOOKS_PER_SECOND: Final = 400
JOIN_SECONDS: Final = 5.0

Take = Callable[[], Awaitable[list["Message"]]]


class _Waiter:
    __slots__ = ("found", "take")

    def __init__(self, take: Take) -> None:
        self.take = take
        self.found: asyncio.Future[list[Message]] = asyncio.get_running_loop().create_future()


class Waiting:
    """All lines."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._lines: dict[str, deque[_Waiter]] = {}
        self._jobs: set[asyncio.Task[None]] = set()
        self._is_stopped = False
        # How often all who wait were answered: who came before the last time is not to begin to wait.
        self.recalls = 0

    async def wait(
        self, queue: str, take: Take, seconds: float, gone: Awaitable[Any], *, since: int
    ) -> list[Message]:
        """Give what `take` gives when its turn has come, [] after so many seconds or when `gone` is done.

        `since` is the number of `recalls` from before it was looked at whether he may receive: if there was
        one since, he may have lost the right on his way here. What was taken for somebody who is gone is
        given back at once.
        """
        if self._is_stopped or self.recalls != since:
            return []
        waiter = _Waiter(take)
        self._stand(queue, waiter)
        leaving: asyncio.Future[Any] = asyncio.ensure_future(gone)
        try:
            await asyncio.wait({waiter.found, leaving}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done() and waiter.found.done() and not waiter.found.exception():
                self._give_back(waiter.found.result())
                return []
            return waiter.found.result() if waiter.found.done() else []
        except asyncio.CancelledError:
            if waiter.found.done() and not waiter.found.exception():
                self._give_back(waiter.found.result())
            raise
        finally:
            leaving.cancel()
            self._leave(queue, waiter)

    def stop(self) -> None:
        """Answer all who wait with nothing; nobody waits from now on."""
        self._is_stopped = True
        self.recall()

    def recall(self) -> None:
        """Answer all who wait with nothing: who still may asks again, and is looked at again."""
        self.recalls += 1
        for line in self._lines.values():
            for waiter in line:
                if not waiter.found.done():
                    waiter.found.set_result([])

    async def join(self) -> None:
        """Wait for what still runs, so that what was taken for nobody is given back."""
        while self._jobs:  # one may begin another
            _, left = await asyncio.wait(self._jobs, timeout=JOIN_SECONDS)
            if left:
                return

    def _stand(self, queue: str, waiter: _Waiter) -> None:
        key = queue.lower()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            line.append(waiter)
            self._begin(self._serve(key, line))
        else:
            line.append(waiter)

    def _leave(self, queue: str, waiter: _Waiter) -> None:
        if not waiter.found.done():
            waiter.found.cancel()
        line = self._lines.get(queue.lower())
        if line is not None and waiter in line:
            line.remove(waiter)

    def _begin(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        # It serves many requests: it must not belong to the one that began it.
        job = asyncio.create_task(run(), context=Context())
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)

    async def _serve(self, key: str, line: deque[_Waiter]) -> None:
        try:
            async with announcements(self._client, key) as announced:
                interval = FIRST_POLL_SECONDS
                while line and not self._is_stopped:
                    # In this order: what is announced during the look ends the next wait.
                    announced.clear()
                    if await self._look(line):
                        interval = FIRST_POLL_SECONDS
                    if line and not self._is_stopped:
                        await announced.wait(interval)
                        longest = max(POLL_SECONDS, len(self._lines) / LOOKS_PER_SECOND)
                        interval = min(interval * 2, longest)
        finally:
            # Nothing is awaited since the line was found empty: nobody can have joined it unserved.
            if self._lines.get(key) is line:
                del self._lines[key]
            for waiter in line:
                if not waiter.found.done():
                    waiter.found.set_result([])

    async def _look(self, line: deque[_Waiter]) -> bool:
        """Serve from the head of the line as long as something comes; tell whether anything did."""
        has_found = False
        while line and not self._is_stopped:
            waiter = line[0]
            try:
                messages = await waiter.take()
            except SpanmqError as error:
                # The queue is gone, or the database is: all who wait for it should know.
                for each in line:
                    if not each.found.done():
                        each.found.set_exception(error)
                line.clear()
                return has_found
            if not messages:
                return has_found
            has_found = True
            if waiter.found.done():
                self._give_back(messages)
            else:
                waiter.found.set_result(messages)
            if line and line[0] is waiter:
                line.popleft()
        return has_found

    def _give_back(self, messages: list[Message]) -> None:
        if messages:
            self._begin(self._release(messages))

    async def _release(self, messages: list[Message]) -> None:
        try:
            await self._client.release(messages)
        except SpanmqError as error:
            # They come back when their lease ends.
            logger.warning("release_failed error=%s count=%s", type(error).__name__, len(messages))
