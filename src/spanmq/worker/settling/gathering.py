"""Gathers verdicts, which one call settles for each lease. No I/O here: the caller passes the time.

They are gathered while all slots are in use: the rest of the lease follows, and the processor time of a call is
better used by handlers. A lease that is complete is settled at once; all else within milliseconds when a slot is idle.
"""

import math
from typing import Final

from spanmq.worker.effect import Settle
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.job import Job, Lease, Released, Stored
from spanmq.worker.setting import Settings

# The number of concurrent calls.
CALLS_MAX: Final = 3
# How long what must not wait is gathered: handlers that began together end together.
SOON_SECONDS: Final = 0.003
# The share of a lease's remaining time for which its verdicts may be gathered.
SHARE_OF_LEASE: Final = 0.05

Bundle = tuple[Lease, HandlerFailure | Released | Stored | None]


class Gathering:
    """The verdicts for a server that are not settled yet."""

    __slots__ = ("_calls", "_due_at", "_gather", "_gathered", "_most", "_pending", "_server", "backlog")

    def __init__(self, server: str, settings: Settings) -> None:
        self._server = server
        self._gather = settings.gather
        # The number of verdicts that are settled without waiting for more.
        self._most = settings.batch
        self._pending: dict[Bundle, list[Job]] = {}
        # The number of messages that wait to be settled, or are being settled.
        self.backlog = 0
        # Of these, the number that no call has taken yet.
        self._gathered = 0
        # When they are to be settled, at the latest.
        self._due_at = math.inf
        self._calls = 0

    @property
    def due_at(self) -> float:
        """When to take bundles: not while as many calls as possible are under way."""
        return self._due_at if self._calls < CALLS_MAX else math.inf

    def add(
        self, job: Job, verdict: HandlerFailure | Released | Stored | None, now: float, *, is_busy: bool
    ) -> None:
        """Add a verdict; `is_busy` says that the slot of a handler that has ended is in use again."""
        lease = job.lease
        count = len(job.messages)
        self._pending.setdefault((lease, verdict), []).append(job)
        self.backlog += count
        self._gathered += count
        if lease.undecided == 0 or self._gathered >= self._most:
            self._due_at = -math.inf  # settling the whole lease at once is the cheapest
        elif self._due_at > now:
            # A sender may wait for a result, other workers for what is released, and a group for its message.
            if verdict is not None or job.group is not None or not is_busy:
                patience = min(SOON_SECONDS, self._gather)
            else:
                patience = min(self._gather, (lease.ends_at - now) * SHARE_OF_LEASE)
            self._due_at = min(self._due_at, now + patience)

    def hurry(self) -> None:
        """Settle all that was gathered at once."""
        if self._pending:
            self._due_at = -math.inf

    def take(self, now: float) -> list[Settle]:
        """Return the calls to begin now."""
        calls: list[Settle] = []
        while self._pending and self.due_at <= now:
            (lease, verdict), jobs = next(iter(self._pending.items()))
            del self._pending[lease, verdict]
            self._gathered -= sum(len(job.messages) for job in jobs)
            self._calls += 1
            calls.append(Settle(self._server, lease, verdict, jobs))
        if not self._pending:
            self._due_at = math.inf
        return calls

    def ended(self, count: int) -> None:
        """Record the end of a call that settled so many messages."""
        self._calls -= 1
        self.backlog -= count
