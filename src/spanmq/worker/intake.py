"""One queue: receives messages as it is told to, and passes them on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from spanmq.client.polling import Polling
from spanmq.errors import (
    ConnectionFailedError,
    ConnectionLostError,
    DecryptionError,
    InvalidBodyError,
    SchemaVersionError,
    SpanmqError,
)
from spanmq.model import Message
from spanmq.worker.breaker import Breaker, Change
from spanmq.worker.event import (
    BreakerClosed,
    BreakerOpened,
    BreakerTried,
    CallFailed,
    EventBus,
    MessagesReceived,
)
from spanmq.worker.failure import Failure, storable
from spanmq.worker.isolation import Isolation
from spanmq.worker.job import Holding, Job, Release, Undecodable, Verdict
from spanmq.worker.limiter import ConcurrencyLimiter
from spanmq.worker.pool import Share
from spanmq.worker.session import Session, backoff
from spanmq.worker.setting import Settings

# How long a stop waits for a receive that is under way, if the server does not answer.
STOP_SECONDS: Final = 3.0
# The pause after a batch of which no body could be decoded.
UNOPENED_SECONDS_MAX: Final = 0.5


@dataclass(eq=False, kw_only=True)
class Intake:
    """The receiving side of a queue; `on_lease` is called with each new lease before its jobs are in limiter.

    `on_progress` is that of its holdings; it is also called when the breaker changes. `on_due` is called with the queue
    and True when the breaker is to be looked at. `on_decided` is called with a job that no handler gets, and
    `on_received` after each receive with what was asked for and what came, None after an error.
    """

    queue: str
    session: Session
    settings: Settings
    one_each: bool
    limiter: ConcurrencyLimiter
    share: Share
    isolation: Isolation
    bus: EventBus
    on_lease: Callable[[Holding], None]
    on_progress: Callable[[], None]
    on_due: Callable[[str, bool], None]
    on_decided: Callable[[Job, Verdict], None]
    on_received: Callable[["Intake", int, int | None], None]

    def __post_init__(self) -> None:
        """Begin with nothing received."""
        self.breaker = Breaker(self.settings.breaker)
        self.is_ordered = False
        # Whether nothing is received any more.
        self.is_stopped = False
        self.is_receiving = False
        # Ignore polls until this time: the last receives found nothing.
        self.ignored_until = 0.0
        self._polling = Polling.of_worker()
        # Receives in a row that raised an error.
        self.failures = 0
        self._holdings: set[Holding] = set()
        # Whether receive() has none of the arguments of 0.2.0.
        self._is_old_schema = False
        self._task: asyncio.Task[None] | None = None

    def receive(self, quantity: int) -> asyncio.Task[None]:
        """Begin to receive up to `quantity` messages."""
        self._task = asyncio.create_task(self._receive(quantity), name=f"spanmq intake {self.queue}")
        return self._task

    async def stop(self) -> None:
        """Stop receiving.

        Waits for a receive that is under way, so that its messages are not leased in vain.
        """
        self.is_stopped = True
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])

    def found(self, count: int, *, is_woken: bool) -> None:
        """Record what a receive found that followed a poll, or a notification."""
        if count or is_woken:
            self._polling.restart()
            self.ignored_until = 0.0
        else:
            self.ignored_until = monotonic() + self._polling.pause
            self._polling.paused()

    def judged(self, job: Job, failure: Failure | None) -> Change | None:
        """Record the verdict of a handler with the breaker; return its change."""
        if failure is None or failure.category in ("BUSINESS", "PERMANENT"):
            return self.breaker.succeeded()
        if failure.category not in ("DEPENDENCY", "TRANSIENT"):
            return None
        # A batch holds only first attempts, or one message.
        is_counted = failure.category == "DEPENDENCY" and not job.retries
        return self.breaker.failed(monotonic(), is_counted=is_counted, error=failure.error)

    def let_go(self, job: Job) -> Change | None:
        """Record that the messages of a job are held no more; return the change of the breaker."""
        count = len(job.messages)
        self.share.held -= count
        self.share.retries -= job.retries
        return self.breaker.tried(count, monotonic()) if job.is_trial else None

    def tell(self, change: Change | None) -> None:
        """Emit an event for a change of the breaker, report it, and look again when its pause is over."""
        if change is None:
            return
        breaker = self.breaker
        if change == "opened":
            self.bus.emit(BreakerOpened(self.queue, breaker.pause, breaker.failures, breaker.error))
            self._look_later()
        elif change == "closed":
            self.bus.emit(BreakerClosed(self.queue))
        else:
            self.bus.emit(BreakerTried(self.queue))
        self.on_progress()

    def close_breaker(self) -> None:
        """Close the breaker, by a command."""
        self.tell(self.breaker.close())
        self.on_due(self.queue, True)

    def gate(self) -> None:
        """Limit what is held while the breaker is not closed."""
        self.tell(self.breaker.look(monotonic()))
        self.share.at_most = None
        if self.is_stopped or self.breaker.state == "open":
            self.share.at_most = 0
        elif self.breaker.state == "trial":
            # What it has released may be the newest, and is visible when that is settled.
            is_released = not any(each.unsettled > each.undecided for each in self._holdings)
            self.share.at_most = self.share.held + self.breaker.tries if is_released else 0

    async def _receive(self, quantity: int) -> None:
        count: int | None = None
        now = monotonic()
        slots = quantity if self.one_each else 1
        retries = None if self._is_old_schema else self.share.room_for_retries
        is_trial = self.breaker.state == "trial"
        self.is_receiving = True
        try:
            messages = await self.session.run(
                lambda client: client.receive(
                    self.queue,
                    quantity,
                    lease=self.settings.lease,
                    slots=slots,
                    alone=True,
                    retries=retries,
                    newest=is_trial and not self._is_old_schema,
                )
            )
            # In this task, without an await between them: a received lease is always recorded.
            if messages:
                self._take(messages, now, is_trial=is_trial)
            count = len(messages)
            if retries is not None and sum(each.attempt > 1 for each in messages) > retries:
                quantity = count  # more of these may be visible
            self.failures = 0
        except (ConnectionFailedError, ConnectionLostError):
            pass  # the session connects again
        except (SpanmqError, ValueError) as error:
            if isinstance(error, SchemaVersionError) and not self._is_old_schema:
                self._is_old_schema = True
            else:
                self.failures += 1
                self._failed(error)
        finally:
            self.is_receiving = False
            self.isolation.changed()
            self.on_received(self, quantity, count)

    def _failed(self, error: Exception) -> None:
        pause = backoff(self.failures)
        if isinstance(error, DecryptionError | InvalidBodyError):
            # They were failed, and are retried by the queue's policy, possibly without a backoff. Other
            # messages may follow them.
            pause = min(pause, UNOPENED_SECONDS_MAX)
        self.bus.emit(CallFailed(self.queue, " ".join(str(error).split()), pause))
        self.ignored_until = monotonic() + pause

    def _take(self, messages: list[Message], now: float, *, is_trial: bool) -> None:
        lease_id = messages[0].lease_id or 0
        seconds = _seconds_of(messages[0])
        holding = Holding(self.queue, lease_id, len(messages), now, seconds, self.on_progress)
        self._holdings = {each for each in self._holdings if each.unsettled > 0} | {holding}
        self.on_lease(holding)
        self.bus.emit(MessagesReceived(self.queue, lease_id, len(messages)))
        if is_trial:
            self.breaker.trying(len(messages), monotonic())
            self._look_later()
        if messages[0].slot == 0:
            self.isolation.add(self._job(messages, holding, is_trial=is_trial))
            return
        if self.isolation.is_active:
            # This receive was under way when another queue's message was reserved.
            self.on_decided(self._job(messages, holding, is_trial=is_trial), Release())
            return
        good = []
        decided: list[tuple[Job, Verdict]] = []
        bad_groups = set()
        for message in messages:
            group = message.group if self.is_ordered else None
            if type(message.body) is Undecodable:
                decided.append(
                    (self._job([message], holding, is_trial=is_trial), undecodable(message.body.error))
                )
                bad_groups.add(group)
            elif group is not None and group in bad_groups:
                # The database releases it when the one before it is rejected.
                job = self._job([message], holding, is_trial=is_trial)
                job.is_behind = True
                decided.append((job, Release()))
            else:
                good.append(message)
        jobs = self._jobs(good, holding, is_trial=is_trial)
        # When all are counted: a worker that stops waits until it holds none.
        for job, verdict in decided:
            self.on_decided(job, verdict)
        for job in jobs:
            self.limiter.add(job)

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(self.breaker.pause, self.on_due, self.queue, True)

    def _jobs(self, messages: list[Message], holding: Holding, *, is_trial: bool) -> list[Job]:
        if not self.settings.in_batches:
            return [
                self._job([each], holding, each.group if self.is_ordered else None, is_trial=is_trial)
                for each in messages
            ]
        # In an ordered queue, one batch after the other.
        group = "" if self.is_ordered else None
        # What failed, or may fail, is handled by itself: it takes no other message with it again.
        alone = [each for each in messages if is_trial or each.attempt > 1]
        together = [each for each in messages if not (is_trial or each.attempt > 1)]
        batches = [[each] for each in alone] + ([together] if together else [])
        return [self._job(batch, holding, group, is_trial=is_trial) for batch in batches]

    def _job(
        self, messages: list[Message], holding: Holding, group: str | None = None, *, is_trial: bool
    ) -> Job:
        """Return a job that counts as held."""
        job = Job(messages, holding, group)
        job.is_trial = is_trial
        self.share.held += len(messages)
        self.share.retries += job.retries
        return job


def _seconds_of(message: Message) -> float:
    """Return the length of the lease in seconds; both of its times come from the database."""
    begun_at = message.last_read_at or message.enqueued_at
    return (message.leased_until - begun_at).total_seconds()


def undecodable(error: Exception) -> Failure:
    """Return the verdict on a body that cannot be decoded."""
    text = storable(f"the body cannot be decoded: {error}")[:2_000]
    return Failure("reject", text, "PERMANENT", error_class=type(error).__qualname__)
