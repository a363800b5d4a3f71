"""A queue that a worker receives from. No I/O here: the caller passes the time."""

from collections.abc import Sequence
from typing import Final

from spanmq.client.polling import Polling
from spanmq.errors import DecryptionError, InvalidBodyError
from spanmq.model import Message
from spanmq.worker.breaker import Breaker, Change
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.inbox import Inbox
from spanmq.worker.job import Job, Lease
from spanmq.worker.receiving.pool import Share
from spanmq.worker.running.limiter import ConcurrencyLimiter
from spanmq.worker.session import backoff
from spanmq.worker.setting import Settings

# The pause after a batch of which no body could be decoded.
UNOPENED_SECONDS_MAX: Final = 0.5


class Source:
    """The state of a queue of a server: its share of the slots, its breaker, its leases, its pauses."""

    def __init__(self, queue: str, server: str, share: Share, settings: Settings) -> None:
        self.queue = queue
        self.server = server
        self.share = share
        self.breaker = Breaker(settings.breaker)
        # Jobs that wait for those of their group.
        self.limiter = ConcurrencyLimiter()
        self.is_ordered = False
        # Whether nothing is received any more.
        self.is_stopped = False
        # Ignore polls until this time: the last receives found nothing.
        self.ignored_until = 0.0
        # Receives in a row that raised an error.
        self.failures = 0
        # Whether receive() has none of the arguments of 0.2.0.
        self.is_old_schema = False
        self._in_batches = settings.in_batches
        self._polling = Polling.of_worker()
        self._leases: set[Lease] = set()

    def receive_ended(self, count: int, now: float, *, is_woken: bool) -> None:
        """Record what a receive found that followed a poll, or a notification."""
        if count or is_woken:
            self._polling.restart()
            self.ignored_until = 0.0
        else:
            self.ignored_until = now + self._polling.pause
            self._polling.paused()

    def failed(self, error: Exception, now: float) -> float:
        """Record the error of a receive; return the seconds until the next one."""
        self.failures += 1
        pause = backoff(self.failures)
        if isinstance(error, DecryptionError | InvalidBodyError):
            # They were failed, and are retried by the queue's policy, possibly without a backoff. Other
            # messages may follow them.
            pause = min(pause, UNOPENED_SECONDS_MAX)
        self.ignored_until = now + pause
        return pause

    def judged(self, job: Job, failure: HandlerFailure | None, now: float) -> Change | None:
        """Record the verdict of a handler with the breaker; return its change."""
        if failure is None or failure.category in ("BUSINESS", "PERMANENT"):
            return self.breaker.succeeded()
        if failure.category not in ("DEPENDENCY", "TRANSIENT"):
            return None
        # A batch holds only first attempts, or one message.
        is_counted = failure.category == "DEPENDENCY" and not job.retries
        return self.breaker.failed(now, is_counted=is_counted, error=failure.error)

    def let_go(self, job: Job, now: float) -> Change | None:
        """Record that the messages of a job are held no more; return the change of the breaker."""
        count = len(job.messages)
        self.share.held -= count
        self.share.retries -= job.retries
        return self.breaker.tried(count, now) if job.is_trial else None

    def gate(self, now: float) -> Change | None:
        """Limit what is held while the breaker is not closed; return the change of the breaker."""
        change = self.breaker.look(now)
        self.share.at_most = None
        if self.is_stopped or self.breaker.state == "open":
            self.share.at_most = 0
        elif self.breaker.state == "trial":
            # What it has released may be the newest, and is visible when that is settled.
            is_released = not any(lease.unsettled > lease.undecided for lease in self._leases)
            self.share.at_most = self.share.held + self.breaker.tries if is_released else 0
        return change

    def hold(self, messages: Sequence[Message], begun_at: float, inbox: Inbox | None) -> Lease:
        """Return the lease of messages whose receive began at a time of this process's clock."""
        lease_id = messages[0].lease_id or 0
        ids = [message.message_id for message in messages]
        lease = Lease(self.queue, lease_id, ids, begun_at, _seconds_of(messages[0]), inbox)
        self._leases = {other for other in self._leases if other.unsettled > 0} | {lease}
        return lease

    def jobs(self, messages: list[Message], lease: Lease, *, is_trial: bool) -> list[Job]:
        """Return the jobs of messages: each is one call of the handler."""
        if not self._in_batches:
            return [
                self.job([message], lease, message.group if self.is_ordered else None, is_trial=is_trial)
                for message in messages
            ]
        # In an ordered queue, one batch after the other.
        group = "" if self.is_ordered else None
        # What failed, or may fail, is handled by itself: it takes no other message with it again.
        alone = [message for message in messages if is_trial or message.attempt > 1]
        together = [message for message in messages if not (is_trial or message.attempt > 1)]
        batches = [[message] for message in alone] + ([together] if together else [])
        return [self.job(batch, lease, group, is_trial=is_trial) for batch in batches]

    def job(self, messages: list[Message], lease: Lease, group: str | None = None, *, is_trial: bool) -> Job:
        """Return a job that counts as held."""
        job = Job(messages, lease, group)
        job.is_trial = is_trial
        lease.jobs.append(job)
        self.share.held += len(messages)
        self.share.retries += job.retries
        return job


def _seconds_of(message: Message) -> float:
    """Return the length of the lease in seconds; both of its times come from the database."""
    begun_at = message.last_read_at or message.enqueued_at
    return (message.leased_until - begun_at).total_seconds()
