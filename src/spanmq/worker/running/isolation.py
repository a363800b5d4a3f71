"""Messages that are handled alone, because a process may have died of them. No I/O here."""

from collections import deque
from collections.abc import Callable
from typing import Final

from spanmq.worker.job import Job

# How long to wait for a server to confirm the settlements of what was handled before.
SETTLE_SECONDS: Final = 5.0


class Isolation:
    """Reserved messages, which are handled one by one, each while the process handles nothing else.

    While it is active, nothing is received and no other handler begins. A reserved delivery does not count
    before it has begun, so a process that dies while others finish costs the message no attempt.
    """

    __slots__ = ("_job", "_waiting", "settles_until")

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._job: Job | None = None
        # Until when the settlements of what was handled before are waited for; None while that is handled.
        self.settles_until: float | None = None

    @property
    def is_active(self) -> bool:
        """Return whether a message waits to be handled alone, or is being handled alone."""
        return bool(self._waiting) or self._job is not None

    def add(self, job: Job) -> None:
        """Add a reserved message."""
        self._waiting.append(job)

    def take_back(self, chosen: Callable[[Job], bool]) -> list[Job]:
        """Remove and return those that have not begun."""
        taken = [job for job in self._waiting if chosen(job)]
        self._waiting = deque(job for job in self._waiting if not chosen(job))
        return taken

    def next(self, now: float, *, held: float, is_settled: bool) -> Job | None:
        """Return the message that begins now, if one does.

        `held` messages are held by the worker, with those that wait here (more if a receive is under way);
        `is_settled` says that no settlement is under way.
        """
        if self._job is not None and self._job.is_decided:
            self._job = None
        if self._job is not None or not self._waiting or held > len(self._waiting):
            self.settles_until = None
            return None
        if self.settles_until is None:
            self.settles_until = now + SETTLE_SECONDS
        if not is_settled and now < self.settles_until:
            return None
        self.settles_until = None
        self._job = self._waiting.popleft()
        return self._job
