"""Jobs that wait for a handler: in an ordered queue for those of their group, else for a place of their kind."""

from collections import deque
from collections.abc import Callable

from spanmq.worker.job import Job

# A kind of jobs, and how many of it may run concurrently.
Limit = tuple[str, int]


def by_group(job: Job) -> Limit | None:
    """Return the limit of an ordered queue: jobs of one group run one after the other."""
    return None if job.group is None else (job.group, 1)


class ConcurrencyLimiter:
    """Says which jobs may begin; parks those of a kind whose limit is reached."""

    __slots__ = ("_limit_of", "_parked", "_running")

    def __init__(self, limit_of: Callable[[Job], Limit | None] = by_group) -> None:
        self._limit_of = limit_of
        self._running: dict[str, set[Job]] = {}
        self._parked: dict[str, deque[Job]] = {}

    def add(self, job: Job) -> bool:
        """Take a job; return whether it may begin now. If not, it is parked."""
        limit = self._limit_of(job)
        if limit is None:
            return True
        kind, most = limit
        running = self._running.setdefault(kind, set())
        if len(running) >= most:
            self._parked.setdefault(kind, deque()).append(job)
            return False
        running.add(job)
        return True

    def done(self, job: Job, *, succeeded: bool = True) -> tuple[Job | None, list[Job]]:
        """Return the next job of the kind, which may begin now, and those that must not be handled now.

        After a failure these are the ones of the same lease: the database has released them behind the failed
        one, and delivers them again in order. A job that never began frees no place.
        """
        limit = self._limit_of(job)
        if limit is None or job not in (running := self._running.get(limit[0], set())):
            return None, []
        kind = limit[0]
        running.discard(job)
        dropped = [] if succeeded else self._take(kind, lambda other: other.lease is job.lease)
        if parked := self._parked.get(kind):
            following = parked.popleft()
            running.add(following)
            if not parked:
                del self._parked[kind]
            return following, dropped
        if not running:
            del self._running[kind]
        return None, dropped

    def drain(self, chosen: Callable[[Job], bool] = lambda _: True) -> list[Job]:
        """Remove the parked jobs that `chosen` selects, and return them."""
        return [job for kind in [*self._parked] for job in self._take(kind, chosen)]

    def _take(self, kind: str, chosen: Callable[[Job], bool]) -> list[Job]:
        parked = self._parked.pop(kind, deque())
        if left := deque(job for job in parked if not chosen(job)):
            self._parked[kind] = left
        return [job for job in parked if chosen(job)]
