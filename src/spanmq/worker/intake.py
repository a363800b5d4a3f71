"""One queue: receives as many messages as there is room for, and passes them on."""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

from spanmq.client import AsyncClient
from spanmq.client import call as argument
from spanmq.client._async.listener import AsyncAnnouncement
from spanmq.client.call import about, given, nothing
from spanmq.client.concurrency import AHEAD_SECONDS, AsyncEvent, Due
from spanmq.errors import (
    ConnectionFailedError,
    ConnectionLostError,
    DecryptionError,
    InvalidBodyError,
    MissingPrivilegeError,
    SpanmqError,
)
from spanmq.model import Message
from spanmq.worker.breaker import Breaker, Change
from spanmq.worker.event import BreakerClosed, BreakerOpened, BreakerTried, CallFailed, MessagesReceived, Seam
from spanmq.worker.failure import Failure, storable
from spanmq.worker.isolation import Isolation
from spanmq.worker.job import Holding, Job, Release, Undecodable, Verdict
from spanmq.worker.line import Line
from spanmq.worker.pool import Pool
from spanmq.worker.session import Session, backoff
from spanmq.worker.setting import Settings

# The wait after the last received message: a sender less than 10 ms after another does not notify again, and
# a transaction that began long ago may commit at any time. Each further wait is GROWTH times as long.
FIRST_LOOK_SECONDS: Final = 0.012
GROWTH: Final = 10.0
# The longest wait: together with all else that an idle worker queries, including when the next message
# becomes visible, it makes less than one query a second. Messages that become visible within 4 s are
# announced at once, so no earlier poll is needed.
LOOK_SECONDS: Final = 3.0
# A notification wakes every idle worker, and one of them gets the message. A worker that finds nothing twice
# or more pauses before its next poll, so that one poll serves for all notifications of that time.
LATE_SECONDS: Final = 0.01
LATE_SECONDS_MAX: Final = 0.1
# The interval without notifications.
DEAF_LOOK_SECONDS: Final = 0.5
# A fallback, so that a missed event cannot stop the worker indefinitely.
ROOM_SECONDS: Final = 1.0
# How long a stop waits for a receive that is under way, if the server does not answer.
STOP_SECONDS: Final = 3.0
# The pause after a batch of which no body could be decoded.
UNOPENED_SECONDS_MAX: Final = 0.5
# Time for the trial's message and the next report, so that a breaker that opens repeatedly stays visible.
BREAKER_SLACK_SECONDS: Final = 5.0
# The longest time until a queue that becomes ordered is noticed.
POLICY_SECONDS: Final = 30.0


@dataclass(eq=False, kw_only=True)
class Intake:
    """The receiving side of a queue; `on_lease` is called with each new lease before its jobs are in line.

    `on_decided` is called with a job that no handler gets.
    """

    queue: str
    session: Session
    settings: Settings
    one_each: bool
    line: Line
    pool: Pool
    # Those that wait for free slots.
    hungry: set["Intake"]
    isolation: Isolation
    seam: Seam
    on_lease: Callable[[Holding], None]
    on_decided: Callable[[Job, Verdict], None]
    worker: str

    def __post_init__(self) -> None:
        """Begin with nothing received."""
        self.share = self.pool.join(self.queue)
        self.breaker = Breaker(self.settings.breaker)
        # The last report on the breaker: how often it had opened, and whether it was open.
        self._reported = (0, False)
        self._announced = AsyncAnnouncement()
        # Separate from announcements: a worker without room does not wait for messages, and senders need not
        # notify it.
        self._room_made = AsyncEvent()
        # Whether nothing is received any more.
        self.is_stopped = False
        self.is_receiving = False
        self._is_ordered = False
        self._policy_is_due_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self.is_held_up: Callable[[], bool] = lambda: False
        self.on_room: Callable[[], None] = lambda: None

    async def start(self) -> asyncio.Task[None]:
        """Begin to receive; raises if the queue does not exist, or the role lacks the right to it."""
        self.is_stopped = False
        self.pool.join(self.queue)
        await self.session.run(self._look_at_policy)
        self._task = asyncio.create_task(self._run(), name=f"spanmq intake {self.queue}")
        return self._task

    async def stop(self) -> None:
        """Stop receiving.

        Waits for a receive that is under way, so that its messages are not leased in vain.
        """
        self.is_stopped = True
        self.pool.leave(self.queue)
        self.hungry.discard(self)
        self.wake()
        self._announced.set()
        if self._task is not None:
            if self.is_receiving:
                await asyncio.wait([self._task], timeout=STOP_SECONDS)
            self._task.cancel()
            await asyncio.wait([self._task])

    def wake(self) -> None:
        """Poll again, because there is room."""
        self._room_made.set()

    def tell(self, change: Change | None, error: str | None = None) -> None:
        """Emit an event for a change of the breaker, with the error that caused it."""
        if change == "opened":
            opened_by = self.breaker.opened_by
            self.seam.emit(BreakerOpened(self.queue, self.breaker.pause_seconds, *opened_by, error))
        elif change == "closed":
            self.seam.emit(BreakerClosed(self.queue))
        elif change == "tried":
            self.seam.emit(BreakerTried(self.queue))

    async def _run(self) -> None:
        while not self.is_stopped:
            client = await self.session.client()
            async with client.admin.announcements(self.queue) as self._announced:
                await self._receive_with(client)

    async def _receive_with(self, client: AsyncClient) -> None:
        """Receive until the client is replaced."""
        interval = FIRST_LOOK_SECONDS
        failures = 0
        # The number of consecutive notifications after which another worker got the message.
        late = 0
        # Whether only the end of a wait led to this poll: it is not urgent.
        is_look = False
        is_announced = False
        while not self.is_stopped:
            # In this order: an announcement during the poll ends the next wait.
            self._announced.clear()
            self._room_made.clear()
            await self._report_breaker()
            self.share.is_ready = True
            quantity = self._room()
            if not quantity:
                self.hungry.add(self)
                await self._room_made.wait(self._patience())
                self.hungry.discard(self)
                is_look = is_announced = False
                continue
            try:
                if monotonic() >= self._policy_is_due_at:
                    await self.session.run(self._look_at_policy)
                due = await self._due(is_asked=is_look and interval >= AHEAD_SECONDS)
                count = await self._receive(quantity)
            except (ConnectionFailedError, ConnectionLostError):
                return
            except (SpanmqError, ValueError) as error:
                failures += 1
                await self._pause_after(error, failures)
                continue
            failures = 0
            if count:
                interval = FIRST_LOOK_SECONDS
                is_look = is_announced = False
                late = 0
                # Handlers first: another receive takes as long as starting the received jobs.
                await asyncio.sleep(0)
                continue
            if not self.is_stopped:
                if is_announced:
                    late += 1
                    await asyncio.sleep(pause_of_late(late))
                is_announced = await self._announced.wait(due.within(interval))
                is_look = not is_announced
            # The announced message may become visible in a moment: look ahead soon.
            interval = min(interval * GROWTH, self._longest_wait()) if is_look else FIRST_LOOK_SECONDS
            if await self.session.client() is not client:
                return

    async def _pause_after(self, error: Exception, failures: int) -> None:
        pause = backoff(failures)
        if isinstance(error, DecryptionError | InvalidBodyError):
            # They were failed, and are retried by the queue's policy, possibly without a backoff. Other
            # messages may follow them.
            pause = min(pause, UNOPENED_SECONDS_MAX)
        self.seam.emit(CallFailed(self.queue, " ".join(str(error).split()), pause))
        await asyncio.sleep(pause)

    async def _due(self, *, is_asked: bool) -> Due:
        """Ask when the next message becomes visible; called before a poll, so that none in between is missed."""
        if not is_asked:
            return Due()
        [seconds] = await self.session.run(lambda client: client.inspect.look_ahead([self.queue]))
        return Due(seconds)

    async def _receive(self, quantity: int) -> int:
        self.is_receiving = True
        self.pool.asked(self.queue, quantity)
        try:
            now = monotonic()
            slots = quantity if self.one_each else 1
            messages = await self.session.run(
                lambda client: client.receive(
                    self.queue, quantity, lease=self.settings.lease, slots=slots, alone=True
                )
            )
            # In this task, without an await between them: a received lease is always recorded.
            if messages:
                self._take(messages, now)
        finally:
            self.is_receiving = False
            self.isolation.changed()
            self.share.asked = 0
            self.share.is_ready = False
        self.share.is_ready = bool(messages)
        if len(messages) < quantity:
            self.on_room()
        return len(messages)

    def _take(self, messages: list[Message], now: float) -> None:
        lease_id = messages[0].lease_id or 0
        holding = Holding(self.queue, lease_id, len(messages), now, _seconds_of(messages[0]))
        self.share.held += len(messages)
        self.on_lease(holding)
        self.seam.emit(MessagesReceived(self.queue, lease_id, len(messages)))
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
            group = message.group if self._is_ordered else None
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
                self.line.add(Job([message], holding, message.group if self._is_ordered else None))
        elif good:
            # In an ordered queue, one batch after the other.
            self.line.add(Job(good, holding, "" if self._is_ordered else None))

    def _room(self) -> int:
        self.tell(self.breaker.look(monotonic()))
        state = self.breaker.state
        self.share.at_most = 0 if self.is_held_up() or state == "open" else 1 if state == "trial" else None
        return self.pool.quantities().get(self.queue, 0)

    async def _report_breaker(self) -> None:
        """Report the breaker's state to the database, for dashboards and monitoring."""
        breaker = self.breaker
        is_open = breaker.state != "closed"
        if (breaker.times_opened, is_open) == self._reported:
            return
        self._reported = (breaker.times_opened, is_open)
        seconds = max(breaker.remaining(monotonic()), 0.001) + BREAKER_SLACK_SECONDS if is_open else None
        arguments = (argument.text("worker", self.worker), *given(argument.seconds, "seconds", seconds))
        # For display only: errors do not affect receiving.
        with suppress(SpanmqError):
            await self.session.run(
                lambda client: client.admin.run(about(self.queue, "report_breaker", nothing, *arguments))
            )

    def _longest_wait(self) -> float:
        if self.settings.poll_interval is not None:
            return self.settings.poll_interval
        return LOOK_SECONDS if self._announced.is_heard else DEAF_LOOK_SECONDS

    def _patience(self) -> float:
        if self.breaker.state == "open":
            return max(self.breaker.remaining(monotonic()), 0.001)
        return ROOM_SECONDS

    async def _look_at_policy(self, client: AsyncClient) -> None:
        try:
            self._is_ordered = (await client.queues.policy(self.queue)).ordered
        except MissingPrivilegeError:
            self._is_ordered = True  # cannot be determined without the right to look: assume that it is
        self._policy_is_due_at = monotonic() + POLICY_SECONDS


def pause_of_late(times: int) -> float:
    """Return how long to pause after `times` consecutive notifications without a message."""
    if times < 2:
        return 0.0
    return random.random() * min(LATE_SECONDS * 2.0 ** min(times - 2, 20), LATE_SECONDS_MAX)


def _seconds_of(message: Message) -> float:
    """Return the length of the lease in seconds; both of its times come from the database."""
    begun_at = message.last_read_at or message.enqueued_at
    return (message.leased_until - begun_at).total_seconds()


def undecodable(error: Exception) -> Failure:
    """Return the verdict on a body that cannot be decoded."""
    text = storable(f"the body cannot be decoded: {error}")[:2_000]
    return Failure("reject", text, "PERMANENT", error_class=type(error).__qualname__)
