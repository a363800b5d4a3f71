"""Jobs that wait for a handler: in an ordered queue for those of their group, else for a place of their kind."""

from collections import Counter, deque
from collections.abc import Callable

from spanmq.worker.job import Job

# A kind of jobs, and how many of it may run concurrently.
Limit = tuple[str, int]


def by_group(job: Job) -> Limit | None:
    """Return the limit of an ordered queue: jobs of one group run one after the other."""
    return None if job.group is None else (job.group, 1)


class ConcurrencyLimiter:
    """Passes jobs on to `begin`; holds back those of a kind whose limit is reached."""

    __slots__ = ("_begin", "_limit_of", "_parked", "_running", "parked")

    def __init__(
        self, begin: Callable[[Job], None], limit_of: Callable[[Job], Limit | None] = by_group
    ) -> None:
        self._begin = begin
        self._limit_of = limit_of
        self._running: dict[str, set[Job]] = {}
        self._parked: dict[str, deque[Job]] = {}
        # The messages of the parked jobs, by queue.
        self.parked: Counter[str] = Counter()

    def add(self, job: Job) -> None:
        """Pass a job on, or park it."""
        limit = self._limit_of(job)
        if limit is not None:
            kind, most = limit
            running = self._running.setdefault(kind, set())
            if len(running) >= most:
                self._parked.setdefault(kind, deque()).append(job)
                self.parked[job.holding.queue] += len(job.messages)
                return
            running.add(job)
        self._begin(job)

    def done(self, job: Job, *, succeeded: bool = True) -> list[Job]:
        """Pass on the next job of the kind; return those that must not be handled now.

        After a failure these are the ones of the same lease: the database has released them behind the failed
        one, and delivers them again in order. A job that never began frees no place.
        """
        limit = self._limit_of(job)
        if limit is None or job not in (running := self._running.get(limit[0], set())):
            return []
        kind = limit[0]
        running.discard(job)
        dropped = [] if succeeded else self._take(kind, lambda each: each.holding is job.holding)
        if parked := self._parked.get(kind):
            self.add(self._left(parked.popleft()))
        elif not running:
            del self._running[kind]
        return dropped

    def waiting(self) -> list[Job]:
        """Return the parked jobs."""
        return [job for parked in self._parked.values() for job in parked]

    def drain(self, chosen: Callable[[Job], bool] = lambda _: True) -> list[Job]:
        """Remove the parked jobs that `chosen` selects, and return them."""
        return [job for kind in [*self._parked] for job in self._take(kind, chosen)]

    def _take(self, kind: str, chosen: Callable[[Job], bool]) -> list[Job]:
        parked = self._parked.pop(kind, deque())
        if left := deque(job for job in parked if not chosen(job)):
            self._parked[kind] = left
        return [self._left(job) for job in parked if chosen(job)]

    def _left(self, job: Job) -> Job:
        self.parked[job.holding.queue] -= len(job.messages)
        return job
