"""Messages that are handled alone, because a process may have died of them."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from spanmq.worker.job import Job, Release, Verdict

# How long to wait for a server to confirm the settlements of what was handled before.
SETTLE_SECONDS: Final = 5.0


class Isolation:
    """Runs reserved messages one by one, each while the process handles nothing else.

    While it is active, nothing is received and no other handler begins. A reserved delivery does not count
    before it has begun, so a process that dies while others finish costs the message no attempt.
    """

    def __init__(
        self,
        *,
        drain: Callable[[], None],
        is_empty: Callable[[int], bool],
        is_settled: Callable[[], bool],
        begin: Callable[[Job], Awaitable[Verdict | bool]],
        run: Callable[[Job], None],
        decide: Callable[[Job, Verdict], None],
        resume: Callable[[], None],
    ) -> None:
        """Connect the steps.

        `drain` releases what no handler has begun; `is_empty` says whether no more than this number of messages
        is held or being received, `is_settled` whether no settlement is under way. `begin` returns True if the
        job is to `run`, else the verdict with which to `decide` it. `resume` receives again.
        """
        self._drain = drain
        self._is_empty = is_empty
        self._is_settled = is_settled
        self._begin = begin
        self._run = run
        self._decide = decide
        self._resume = resume
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        self._changed = asyncio.Event()

    @property
    def is_active(self) -> bool:
        """Return whether a message waits to be handled alone, or is being handled alone."""
        return bool(self._waiting) or self._job is not None

    def add(self, job: Job) -> None:
        """Handle this reserved message, as soon as it can be alone."""
        self._waiting.append(job)
        self._drain()
        self._changed.set()

    def changed(self) -> None:
        """Look again: a job was decided or settled, or a receive has ended."""
        self._changed.set()

    def take_back(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Remove and return those that have not begun."""
        taken = [job for job in self._waiting if chosen(job)]
        self._waiting = deque(job for job in self._waiting if not chosen(job))
        return taken

    async def run(self) -> None:
        """Handle what is added, until cancelled."""
        while True:
            await self._until(lambda: bool(self._waiting))
            await self._until(lambda: self._is_empty(len(self._waiting)))
            with suppress(TimeoutError):
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self._until(self._is_settled)
            if self._waiting:
                await self._handle(self._waiting.popleft())
            if not self._waiting:
                self._resume()

    async def _handle(self, job: Job) -> None:
        self._job = job
        try:
            begun = await self._begin(job)
            if begun is True:
                self._run(job)
                await self._until(lambda: job.is_decided)
            elif not job.is_decided:
                self._decide(job, begun if not isinstance(begun, bool) else Release())
        finally:
            self._job = None

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            self._changed.clear()
            await self._changed.wait()
