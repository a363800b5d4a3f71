"""Limits on concurrent jobs of a kind, in one worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from spanmq.model import Message
from spanmq.worker.job import Job

# A kind of messages, and how many of it may run concurrently.
Limit = tuple[str, int]


class Gate:
    """Passes jobs on to `begin`; holds back those of a kind whose limit is reached."""

    __slots__ = ("_begin", "_limit_of", "_parked", "_running")

    def __init__(self, begin: Callable[[Job], None], limit_of: Callable[[Message], Limit | None]) -> None:
        self._begin = begin
        self._limit_of = limit_of
        self._running: dict[str, set[Job]] = {}
        self._parked: dict[str, deque[Job]] = {}

    def add(self, job: Job) -> None:
        """Pass a job on, or park it."""
        limit = self._limit_of(job.messages[0])
        if limit is not None:
            kind, most = limit
            running = self._running.setdefault(kind, set())
            if len(running) >= most:
                self._parked.setdefault(kind, deque()).append(job)
                return
            running.add(job)
        self._begin(job)

    def done(self, job: Job) -> None:
        """Free a place for the next job of its kind; a job that never began has none."""
        limit = self._limit_of(job.messages[0])
        if limit is None or job not in (running := self._running.get(limit[0], set())):
            return
        running.discard(job)
        if parked := self._parked.get(limit[0]):
            self.add(parked.popleft())

    def drain(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Remove the parked jobs that `chosen` selects, and return them."""
        drained = [job for parked in self._parked.values() for job in parked if chosen(job)]
        for kind, parked in self._parked.items():
            self._parked[kind] = deque(job for job in parked if not chosen(job))
        return drained
