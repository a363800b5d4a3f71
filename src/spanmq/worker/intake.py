"""One queue: receives messages as it is told to, and passes them on."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from spanmq.client import argument
from spanmq.client.argument import optional
from spanmq.client.call import queue_call
from spanmq.client.polling import Polling
from spanmq.client.rows import nothing
from spanmq.errors import (
    ConnectionFailedError,
    ConnectionLostError,
    DecryptionError,
    InvalidBodyError,
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
# Time for the trial's message and the next report, so that a breaker that opens repeatedly stays visible.
BREAKER_SLACK_SECONDS: Final = 5.0


@dataclass(eq=False, kw_only=True)
class Intake:
    """The receiving side of a queue; `on_lease` is called with each new lease before its jobs are in limiter.

    `on_progress` is that of its holdings. `on_decided` is called with a job that no handler gets, and `on_received`
    after each receive with what was asked for and what came, None after an error.
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
    on_decided: Callable[[Job, Verdict], None]
    on_received: Callable[["Intake", int, int | None], None]
    worker: str

    def __post_init__(self) -> None:
        """Begin with nothing received."""
        self.breaker = Breaker(self.settings.breaker)
        self.is_ordered = False
        # Whether nothing is received any more.
        self.is_stopped = False
        self.is_receiving = False
        # Until then a poll that says that there are messages is not believed: receives got none of them.
        self.ignored_until = 0.0
        self._polling = Polling.of_worker()
        # Receives in a row that raised an error.
        self.failures = 0
        self._task: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()

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

    def tell(self, change: Change | None, error: str | None = None) -> None:
        """Emit an event for a change of the breaker, with the error that caused it, and report it."""
        if change is None:
            return
        if change == "opened":
            opened_by = self.breaker.opened_by
            self.bus.emit(BreakerOpened(self.queue, self.breaker.pause_seconds, *opened_by, error))
        elif change == "closed":
            self.bus.emit(BreakerClosed(self.queue))
        else:
            self.bus.emit(BreakerTried(self.queue))
        report = asyncio.create_task(self._report_breaker(), name=f"spanmq breaker {self.queue}")
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)

    def gate(self) -> None:
        """Limit what is held while the breaker is not closed."""
        self.tell(self.breaker.look(monotonic()))
        state = self.breaker.state
        self.share.at_most = 0 if self.is_stopped or state == "open" else 1 if state == "trial" else None

    async def _receive(self, quantity: int) -> None:
        count: int | None = None
        now = monotonic()
        slots = quantity if self.one_each else 1
        self.is_receiving = True
        try:
            messages = await self.session.run(
                lambda client: client.receive(
                    self.queue, quantity, lease=self.settings.lease, slots=slots, alone=True
                )
            )
            # In this task, without an await between them: a received lease is always recorded.
            if messages:
                self._take(messages, now)
            count = len(messages)
            self.failures = 0
        except (ConnectionFailedError, ConnectionLostError):
            pass  # the session connects again
        except (SpanmqError, ValueError) as error:
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

    def _take(self, messages: list[Message], now: float) -> None:
        lease_id = messages[0].lease_id or 0
        seconds = _seconds_of(messages[0])
        holding = Holding(self.queue, lease_id, len(messages), now, seconds, self.on_progress)
        self.share.held += len(messages)
        self.on_lease(holding)
        self.bus.emit(MessagesReceived(self.queue, lease_id, len(messages)))
        if messages[0].slot == 0:
            self.isolation.add(Job(messages, holding, None))
            return
        if self.isolation.is_active:
            # This receive was under way when another queue's message was reserved.
            self.on_decided(Job(messages, holding, None), Release())
            return
        good = []
        bad_groups = set()
        for message in messages:
            group = message.group if self.is_ordered else None
            if type(message.body) is Undecodable:
                self.on_decided(Job([message], holding, None), undecodable(message.body.error))
                bad_groups.add(group)
            elif group is not None and group in bad_groups:
                # The database releases it when the one before it is rejected.
                job = Job([message], holding, None)
                job.is_behind = True
                self.on_decided(job, Release())
            else:
                good.append(message)
        if not self.settings.in_batches:
            for message in good:
                self.limiter.add(Job([message], holding, message.group if self.is_ordered else None))
        elif good:
            # In an ordered queue, one batch after the other.
            self.limiter.add(Job(good, holding, "" if self.is_ordered else None))

    async def _report_breaker(self) -> None:
        """Report the breaker's state to the database, for dashboards and monitoring."""
        breaker = self.breaker
        is_open = breaker.state != "closed"
        seconds = max(breaker.remaining(monotonic()), 0.001) + BREAKER_SLACK_SECONDS if is_open else None
        arguments = (argument.text("worker", self.worker), *optional(argument.seconds, "seconds", seconds))
        # For display only: errors do not affect receiving.
        with suppress(SpanmqError):
            await self.session.run(
                lambda client: client.admin.run(queue_call(self.queue, "report_breaker", nothing, *arguments))
            )


def _seconds_of(message: Message) -> float:
    """Return the length of the lease in seconds; both of its times come from the database."""
    begun_at = message.last_read_at or message.enqueued_at
    return (message.leased_until - begun_at).total_seconds()


def undecodable(error: Exception) -> Failure:
    """Return the verdict on a body that cannot be decoded."""
    text = storable(f"the body cannot be decoded: {error}")[:2_000]
    return Failure("reject", text, "PERMANENT", error_class=type(error).__qualname__)
