"""Jobs that wait for a handler; in an ordered queue, those of one group run one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from spanmq.worker.job import Job


class Line:
    """Passes jobs on to `begin`; holds back those whose group is busy."""

    __slots__ = ("_begin", "_parked")

    def __init__(self, begin: Callable[[Job], None]) -> None:
        self._begin = begin
        self._parked: dict[str, deque[Job]] = {}  # by busy group

    def add(self, job: Job) -> None:
        """Pass a job on, or park it behind its group."""
        if job.group is not None:
            if job.group in self._parked:
                self._parked[job.group].append(job)
                return
            self._parked[job.group] = deque()
        self._begin(job)

    def done(self, job: Job, *, succeeded: bool) -> list[Job]:
        """Pass on the next job of the group; return those that must not be handled now.

        After a failure these are the ones of the same lease: the database has released them behind the failed
        one, and delivers them again in order.
        """
        if job.group is None:
            return []
        parked = self._parked[job.group]
        dropped: list[Job] = []
        if not succeeded:
            dropped = [each for each in parked if each.holding is job.holding]
            parked = self._parked[job.group] = deque(
                each for each in parked if each.holding is not job.holding
            )
        if parked:
            self._begin(parked.popleft())
        else:
            del self._parked[job.group]
        return dropped

    def drain(self) -> list[Job]:
        """Remove the parked jobs, and return them."""
        jobs = [job for parked in self._parked.values() for job in parked]
        for parked in self._parked.values():
            parked.clear()
        return jobs
