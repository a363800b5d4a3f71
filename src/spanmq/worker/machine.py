"""What a worker does next: `take(events, now)` changes its state, `turn(now)` returns effects. No I/O here."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spanmq.codec.encryption import Unopened
from spanmq.errors import SchemaVersionError
from spanmq.worker.breaker import Change
from spanmq.worker.effect import (
    Abandon,
    BeginAlone,
    Cancel,
    Crash,
    Effect,
    FindCancelled,
    Finish,
    Later,
    Poll,
    Report,
)
from spanmq.worker.event import (
    BreakerClosed,
    BreakerOpened,
    BreakerTried,
    CallFailed,
    EventBus,
    HandlerOverran,
    HandlerSlow,
    LeaseExtended,
    LeaseLost,
    MessageHandled,
    MessageSettled,
    MessagesReceived,
    ShardJoined,
    ShardLeft,
)
from spanmq.worker.failure import HandlerFailure, storable
from spanmq.worker.handler import Handler
from spanmq.worker.inbox import Inbox, PartFailed
from spanmq.worker.incoming import (
    AloneBegun,
    BreakerCloseAsked,
    CancelAsked,
    CancelsFound,
    CommandAsked,
    ExtensionEnded,
    GraceEnded,
    HandlerEnded,
    HandlersLooked,
    PolicySeen,
    QueueEmpty,
    QueueLeft,
    QueueReady,
    QueuesJoined,
    Received,
    ReceiveFailed,
    ReceivesEnded,
    SettlementEnded,
    Started,
    StopAsked,
    Stopping,
)
from spanmq.worker.job import Gone, Job, Lease, Progressed, Released, Slot, Slots, Undecodable, Verdict
from spanmq.worker.observing.usual import HandlingTimes
from spanmq.worker.receiving.pool import Pool
from spanmq.worker.receiving.scheduler import Scheduler, Server
from spanmq.worker.receiving.source import Source
from spanmq.worker.running.isolation import Isolation
from spanmq.worker.running.limiter import ConcurrencyLimiter
from spanmq.worker.running.watch import Overran, Watch
from spanmq.worker.setting import Settings
from spanmq.worker.settling.gathering import Gathering
from spanmq.worker.settling.heartbeat import Leases


class Machine:
    """The state of a worker: its queues, their leases and jobs, and the verdicts that are not settled.

    It adds jobs to the `slots`, which run them, takes back those that have not begun, and looks at those that run.
    """

    def __init__(
        self,
        settings: Settings,
        handler: Handler,
        slots: Slots,
        servers: Iterable[str],
        bus: EventBus,
        inbox: Inbox | None = None,
    ) -> None:
        self._settings = settings
        self._handler = handler
        self._slots = slots
        self._bus = bus
        self._inbox = inbox
        # Includes former queues, whose last messages may still be in flight.
        self.sources: dict[str, Source] = {}
        self.times = HandlingTimes(handler.kind_of)
        # Calls of the handler that ended, by their messages, and messages that are settled.
        self.handled = self.settled = 0
        self._servers = {name: Server(Gathering(name, settings)) for name in servers}
        self._pool = Pool(settings)
        self._scheduler = Scheduler(self._pool, self.sources, self._servers, settings.batch)
        self._ordered: dict[str, bool] = {}
        # Queues whose breaker is not closed.
        self._gated: set[Source] = set()
        self._leases = Leases(settings.lease_max)
        self._watch = Watch(handler, settings, self.times.usual)
        self._isolation = Isolation()
        # Kinds of messages of which only some are handled at once, of all queues together.
        self._limited: ConcurrencyLimiter | None = None
        if (limit_of := handler.limit_of) is not None:
            self._limited = ConcurrencyLimiter(lambda job: limit_of(job.messages[0]))
        # The undecided jobs that were passed on to the slots.
        self._placed = 0
        self._is_started = self._is_stopping = False
        # The time, what is to be done, and whether queues are to be received from, and routine is heard of.
        self._now = 0.0
        self._effects: list[Effect] = []
        self._is_changed = False
        self._hears_routine = False
        self._handlers: Mapping[type, Callable[[Any], None]] = {
            HandlerEnded: self._handler_ended,
            Received: self._received,
            ReceiveFailed: self._receive_failed,
            SettlementEnded: self._settlement_ended,
            QueueReady: self._queue_ready,
            QueueEmpty: lambda event: self._scheduler.exhausted(event.queue),
            PolicySeen: self._policy_seen,
            QueuesJoined: self._queues_joined,
            QueueLeft: self._queue_left,
            Progressed: lambda event: self._report(self.sources[event.queue]),
            AloneBegun: self._alone_begun,
            HandlersLooked: self._look_at_handlers,
            ExtensionEnded: self._extension_ended,
            CancelAsked: self._cancel_asked,
            CancelsFound: self._cancels_found,
            CommandAsked: lambda event: self._effects.append(Report(event.server)),
            BreakerCloseAsked: self._breaker_close_asked,
            StopAsked: lambda _: self._effects.append(Finish("command")),
            Started: self._started,
            Stopping: self._stopping,
            ReceivesEnded: self._receives_ended,
            GraceEnded: self._grace_ended,
            PartFailed: lambda event: self._effects.append(Crash(event.error)),
        }

    def take(self, events: Iterable[object], now: float) -> None:
        """Decide about events of this time; what is to be done is returned by the next turn."""
        self._now = now
        self._hears_routine = self._bus.hears_routine()
        for event in events:
            self._handlers[type(event)](event)

    def turn(self, now: float) -> list[Effect]:
        """Return what to do now, after all events that were taken."""
        self._now = now
        self._extend_leases()
        if self._isolation.is_active:
            self._isolate()
        if self._is_changed:
            self._is_changed = False
            self._divide()
        for server in self._servers.values():
            if server.gathering.due_at <= now:
                self._effects += server.gathering.take(now)
        effects, self._effects = self._effects, []
        return effects

    @property
    def due_at(self) -> float:
        """When to decide again, if no event comes before."""
        due_at = min(server.gathering.due_at for server in self._servers.values())
        settles_until = self._isolation.settles_until
        return min(due_at, self._leases.due_at, math.inf if settles_until is None else settles_until)

    @property
    def held(self) -> int:
        """The messages that wait for a handler, or are being handled."""
        return sum(source.share.held for source in self.sources.values())

    @property
    def backlog(self) -> int:
        """The messages that wait to be settled, or are being settled."""
        return sum(server.gathering.backlog for server in self._servers.values())

    # Queues.

    def _started(self, _: Started) -> None:
        self._is_started = self._is_changed = True
        self._look_at_handlers(HandlersLooked())

    def _queues_joined(self, event: QueuesJoined) -> None:
        for queue in event.queues:
            source = self.sources.get(queue)
            share = self._pool.join(queue)
            if source is None or source.server != event.server:
                source = self.sources[queue] = Source(queue, event.server, share, self._settings)
            source.is_stopped = False
            source.is_ordered = self._ordered.get(queue, False)
            if event.is_later:
                self._effects.append(ShardJoined(queue))

    def _queue_left(self, event: QueueLeft) -> None:
        source = self.sources[event.queue]
        source.is_stopped = True
        self._pool.leave(event.queue)
        if not source.share.asked:
            self._effects.append(ShardLeft(event.queue))

    def _policy_seen(self, event: PolicySeen) -> None:
        self._ordered[event.queue] = event.is_ordered
        if event.queue in self.sources:
            self.sources[event.queue].is_ordered = event.is_ordered

    def _queue_ready(self, event: QueueReady) -> None:
        if self._scheduler.ready(event.queue, self._now, is_woken=event.is_woken):
            self._is_changed = True

    def _divide(self) -> None:
        """Begin receives for the free slots; finish if that is asked for, and nothing is left."""
        if self._is_stopping:
            return
        for source in [*self._gated]:
            self._tell(source, source.gate(self._now))
            if source.breaker.state == "closed":
                self._gated.discard(source)
        is_alone = self._isolation.is_active
        is_idle = self._settings.until_empty and self._is_started and not is_alone and self._holds(0)
        if is_idle and not self.backlog and self._scheduler.look_for_the_end():
            self._effects.append(Finish("empty"))
        self._effects += self._scheduler.divide(is_alone=is_alone)

    def _holds(self, most: int) -> bool:
        """Return whether no more messages than these are held or being received."""
        return not any(source.share.asked for source in self.sources.values()) and self.held <= most

    # Receives.

    def _received(self, event: Received) -> None:
        asked, messages = event.asked, event.messages
        source = self.sources[asked.queue]
        source.failures = 0
        if messages:
            self._take(source, event)
        # More of these may be visible.
        more = asked.retries is not None and sum(message.attempt > 1 for message in messages) > asked.retries
        self._receive_ended(event, len(messages), may_be_more=more)

    def _receive_failed(self, event: ReceiveFailed) -> None:
        source, error = self.sources[event.asked.queue], event.error
        if isinstance(error, SchemaVersionError) and not source.is_old_schema:
            source.is_old_schema = True
        elif error is not None:
            pause = source.failed(error, self._now)
            self._effects.append(CallFailed(source.queue, " ".join(str(error).split()), pause))
        self._receive_ended(event, None)

    def _receive_ended(
        self, event: Received | ReceiveFailed, count: int | None, *, may_be_more: bool = False
    ) -> None:
        self._is_changed = True
        self._effects += self._scheduler.received(event.asked, count, self._now, may_be_more=may_be_more)
        source = self.sources[event.asked.queue]
        if source.is_stopped and not self._is_stopping:
            self._effects.append(ShardLeft(source.queue))

    def _take(self, source: Source, event: Received) -> None:
        messages, is_trial = event.messages, event.asked.is_trial
        lease = source.hold(messages, event.begun_at, self._inbox)
        self._leases.add(lease, self._now)
        self._effects.append(MessagesReceived(source.queue, lease.lease_id, len(messages)))
        if is_trial:
            source.breaker.trying(len(messages), self._now)
            self._look_at_breaker_later(source)
        if messages[0].slot == 0:
            self._isolation.add(source.job(messages, lease, is_trial=is_trial))
            self._give_back_waiting()
            return
        if self._isolation.is_active:
            # This receive was under way when another queue's message was reserved.
            self._decided(source.job(messages, lease, is_trial=is_trial), Released())
            return
        good = []
        decided: list[tuple[Job, Verdict]] = []
        bad_groups = set()
        for message in messages:
            group = message.group if source.is_ordered else None
            if type(message.body) is Undecodable:
                job = source.job([message], lease, is_trial=is_trial)
                decided.append((job, undecodable(message.body.error)))
                bad_groups.add(group)
            elif group is not None and group in bad_groups:
                # The database releases it when the one before it is rejected.
                job = source.job([message], lease, is_trial=is_trial)
                job.is_behind = True
                decided.append((job, Released()))
            else:
                good.append(message)
        jobs = source.jobs(good, lease, is_trial=is_trial)
        # When all are counted: a worker that stops waits until it holds none.
        for job, verdict in decided:
            self._decided(job, verdict)
        for job in jobs:
            self._begin(source, job)

    # Jobs that begin and end.

    def _begin(self, source: Source, job: Job) -> None:
        """Pass a job on, or park it until those of its group have ended."""
        if source.limiter.add(job):
            self._begin_of_kind(job)
        else:
            source.share.parked += len(job.messages)

    def _begin_of_kind(self, job: Job) -> None:
        """Pass a job on, or park it until those of its kind have ended."""
        if self._limited is None or self._limited.add(job):
            self._place(job)
        else:
            self.sources[job.lease.queue].share.parked += len(job.messages)

    def _place(self, job: Job) -> None:
        job.is_placed = True
        self._placed += 1
        self._slots.add(job)

    def _unpark(self, job: Job) -> Job:
        self.sources[job.lease.queue].share.parked -= len(job.messages)
        return job

    def _handler_ended(self, event: HandlerEnded) -> None:
        if not event.job.is_decided:
            self._ended(event.job, event.verdict)

    def _ended(self, job: Job, verdict: Verdict) -> None:
        """Process the verdict on a job that ended, overran, or was never begun."""
        source = self.sources[job.lease.queue]
        if job.progress is not None or job.is_slow:
            self._report(source)  # it is shown no longer
        if job.is_cancelled and isinstance(verdict, HandlerFailure):
            verdict = Released()  # which ends a cancelled message
        if not isinstance(verdict, Released):
            failure = verdict if isinstance(verdict, HandlerFailure) else None
            self.handled += len(job.messages)
            self.times.record(job, failed=failure is not None)
            if self._hears_routine:
                self._effects += [
                    MessageHandled(
                        message.queue,
                        message.message_id,
                        message.attempt,
                        job.seconds,
                        self._handler.task_of(message),
                    )
                    for message in job.messages
                ]
            source.share.record(job.seconds / len(job.messages), is_retry=job.retries > 0)
            self._breaker_changed(source, source.judged(job, failure, self._now))
        self._decided(job, verdict)

    def _decided(self, job: Job, verdict: Verdict) -> None:
        """Settle a job, handled or not, and make room for others."""
        source = self.sources[job.lease.queue]
        self._is_changed = True
        self._settle(source, job, verdict)
        change = source.let_go(job, self._now)
        if self._limited is not None:
            following, _ = self._limited.done(job)
            if following is not None:
                self._place(self._unpark(following))
        if job.group is not None:
            # The messages behind a single one that ends as cancelled stay leased.
            is_end = not isinstance(verdict, HandlerFailure | Released) or (
                job.is_cancelled and len(job.messages) == 1
            )
            succeeded = is_end and not self._is_stopping
            following, dropped = source.limiter.done(job, succeeded=succeeded)
            for other in dropped:
                self._unpark(other).is_behind = True
                self._settle(source, other, Released())
                change = source.let_go(other, self._now) or change
            if following is not None:
                self._begin_of_kind(self._unpark(following))
        if change is not None:
            self._breaker_changed(source, change)

    def _settle(self, source: Source, job: Job, verdict: Verdict) -> None:
        job.is_decided = True
        if job.is_placed:
            self._placed -= 1
        lease = job.lease
        lease.undecided -= len(job.messages)
        if not lease.undecided:
            lease.jobs.clear()  # they refer to it
        if isinstance(verdict, Gone):
            self._effects += [
                MessageSettled(
                    message.queue,
                    message.message_id,
                    verdict.outcome,
                    message.attempt,
                    job.seconds,
                    self._handler.task_of(message),
                )
                for message in job.messages
            ]
            self._confirmed(lease, len(job.messages))
            return
        is_busy = self._placed >= self._settings.concurrency
        self._servers[source.server].gathering.add(job, verdict, self._now, is_busy=is_busy)

    def _settlement_ended(self, event: SettlementEnded) -> None:
        self._servers[event.server].gathering.ended(event.count)
        self._confirmed(event.lease, event.count)
        if event.is_returned:
            self._effects.append(Poll(event.server))  # which tells when the returned messages become visible

    def _confirmed(self, lease: Lease, count: int) -> None:
        """Record that the outcome of messages is known."""
        lease.unsettled -= count
        self.settled += count
        if lease.unsettled <= 0:
            self._leases.discard(lease)
        self._scheduler.changed()
        self._is_changed = True

    # Handlers that run: their limits, their cancellation, and their leases.

    def _look_at_handlers(self, _: HandlersLooked) -> None:
        for event in [*self._watch.look(self._slots.running(), self._now)]:
            message = event.job.messages[0]
            if isinstance(event, Overran):
                self._overran(event)
                continue
            self._effects.append(
                HandlerSlow(
                    message.queue,
                    message.message_id,
                    message.attempt,
                    event.seconds,
                    self._handler.task_of(message),
                    event.usual,
                    event.limit,
                )
            )
            self._report(self.sources[event.job.lease.queue])
        self._effects.append(Later(self._now + self._watch.tick, HandlersLooked()))

    def _overran(self, event: Overran) -> None:
        job, seconds = event.job, event.seconds
        job.seconds = seconds
        for message in job.messages:
            task = self._handler.task_of(message)
            self._effects.append(
                HandlerOverran(message.queue, message.message_id, message.attempt, seconds, task)
            )
        error = f"the handler took longer than {seconds:.3g} s"
        failure: HandlerFailure | Released = HandlerFailure(
            "nack", error, "TRANSIENT", error_class="TimeoutError"
        )
        if self._handler.judge is not None:
            failure = self._handler.judge(TimeoutError(error), job.messages[0])
        self._ended(job, failure)
        self._effects.append(Abandon(event.slot, replace=True))

    def _extend_leases(self) -> None:
        if self._now >= self._leases.due_at:
            extensions, ended = self._leases.due(self._now)
            self._effects += extensions
            for lease in ended:
                self._lose(lease)

    def _extension_ended(self, event: ExtensionEnded) -> None:
        lease = event.lease
        self._leases.extended(lease)
        if event.count is None:
            return
        if event.count:
            # Measured before the call, because the database's time began later.
            lease.ends_at = event.begun_at + event.seconds
            self._effects.append(LeaseExtended(lease.queue, lease.lease_id, event.count, event.seconds))
            # It finds out what was cancelled, if no notification comes.
            self._find_cancelled(lease)
        elif lease.undecided:
            self._lose(lease)
        elif lease.unsettled:
            # Its settlement is under way and will report the outcome.
            lease.ends_at = event.begun_at + event.seconds

    def _lose(self, lease: Lease) -> None:
        """Drop the messages of a lost lease, and cancel their handlers: other workers may have them by now."""
        if lease.is_lost:
            return
        lease.is_lost = True
        self._leases.discard(lease)
        self._effects.append(LeaseLost(lease.queue, lease.lease_id, lease.undecided))
        self._drop(lambda job: job.lease is lease)
        self._give_back_reserved(lambda job: job.lease is lease)
        for slot, job, started_at in [*self._slots.running()]:
            if job.lease is lease:
                job.is_cancelled = True  # plain functions ask
                if self._handler.is_async:
                    self._abandon(slot, job, started_at, replace=True)

    def _abandon(self, slot: Slot, job: Job, started_at: float, *, replace: bool) -> None:
        job.seconds = self._now - started_at
        self._ended(job, Released())
        self._effects.append(Abandon(slot, replace))

    def _cancel_asked(self, event: CancelAsked) -> None:
        for lease in self._leases.of(event.queues):
            self._find_cancelled(lease)

    def _find_cancelled(self, lease: Lease) -> None:
        jobs = [job for job in lease.jobs if not (job.is_decided or job.is_cancelled)]
        if ids := [message.message_id for job in jobs for message in job.messages]:
            self._effects.append(FindCancelled(lease, ids))

    def _cancels_found(self, event: CancelsFound) -> None:
        """Cancel handlers: a plain one asks. The slot and the group of each are free when it ends."""
        slots = {job: slot for slot, job, _ in self._slots.running()}
        for job in event.lease.jobs:
            ids = [message.message_id for message in job.messages if message.message_id in event.gone]
            # Not one whose transaction may have acked it.
            if ids and not (job.is_decided or job.is_cancelled or job.is_doubtful):
                job.is_cancelled = True
                job.is_taken = any(event.gone[message_id] for message_id in ids)
                if job in slots:
                    self._effects.append(Cancel(slots[job]))

    # The breakers.

    def _breaker_changed(self, source: Source, change: Change | None) -> None:
        if change is None:
            return
        self._tell(source, change)
        self._gate(source)
        if change != "closed":
            self._give_back_waiting(source.queue)
            self._give_back_reserved(lambda job: job.lease.queue == source.queue)

    def _gate(self, source: Source) -> None:
        """Limit what a queue gets until its breaker is closed; it is ready at once, and when that changes."""
        self._queue_ready(QueueReady(source.queue, is_woken=True))
        self._gated.add(source)
        self._tell(source, source.gate(self._now))

    def _tell(self, source: Source, change: Change | None) -> None:
        """Tell of a change of a breaker, report it, and look again when its pause is over."""
        if change is None:
            return
        breaker, queue = source.breaker, source.queue
        if change == "opened":
            self._effects.append(BreakerOpened(queue, breaker.pause, breaker.failures, breaker.error))
            self._look_at_breaker_later(source)
        else:
            self._effects.append(BreakerClosed(queue) if change == "closed" else BreakerTried(queue))
        self._report(source)

    def _look_at_breaker_later(self, source: Source) -> None:
        event = QueueReady(source.queue, is_woken=True)
        self._effects.append(Later(self._now + source.breaker.pause, event))

    def _breaker_close_asked(self, event: BreakerCloseAsked) -> None:
        source = self.sources[event.queue]
        self._tell(source, source.breaker.close())
        self._queue_ready(QueueReady(event.queue, is_woken=True))

    def _report(self, source: Source) -> None:
        self._effects.append(Report(source.server))

    # Messages that are handled alone.

    def _isolate(self) -> None:
        is_receiving = any(source.share.asked for source in self.sources.values())
        held = math.inf if is_receiving else self.held
        job = self._isolation.next(self._now, held=held, is_settled=not self.backlog)
        if job is not None:
            self._effects.append(BeginAlone(job))
        if not self._isolation.is_active:
            self._is_changed = True

    def _alone_begun(self, event: AloneBegun) -> None:
        job = event.job
        if job.is_decided:
            return
        if not event.messages:
            self._ended(job, Released())
            return
        job.messages = event.messages
        body = job.messages[0].body
        if isinstance(body, Unopened):
            self._ended(
                job, HandlerFailure("nack", body.error.message, error_class=type(body.error).__name__)
            )
        elif type(body) is Undecodable:
            self._ended(job, undecodable(body.error))
        else:
            self._begin_of_kind(job)

    # Releasing messages.

    def _drop(self, chosen: Callable[[Job], bool]) -> None:
        for job in self._slots.take_back():
            if not chosen(job):
                self._slots.add(job)
            elif not job.is_decided:
                self._ended(job, Released())

    def _give_back_waiting(self, queue: str | None = None) -> None:
        """Release messages that no handler has begun, so that another worker can receive them at once."""
        for source in self.sources.values():
            if queue in (None, source.queue):
                for job in source.limiter.drain():
                    self._settle(source, self._unpark(job), Released())
                    self._breaker_changed(source, source.let_go(job, self._now))
        if self._limited is not None:
            for job in self._limited.drain(lambda job: queue in (None, job.lease.queue)):
                self._ended(self._unpark(job), Released())
        self._drop(lambda job: queue in (None, job.lease.queue))

    def _give_back_reserved(self, chosen: Callable[[Job], bool]) -> None:
        """Release messages that wait to be handled alone; they stay so, and this costs them no attempt."""
        for job in self._isolation.take_back(chosen):
            self._ended(job, Released())

    # The end.

    def _stopping(self, _: Stopping) -> None:
        self._is_stopping = True

    def _receives_ended(self, _: ReceivesEnded) -> None:
        self._give_back_waiting()
        self._give_back_reserved(lambda _: True)

    def _grace_ended(self, _: GraceEnded) -> None:
        self._receives_ended(ReceivesEnded())
        for slot, job, started_at in [*self._slots.running()]:
            self._abandon(slot, job, started_at, replace=False)
        for server in self._servers.values():
            server.gathering.hurry()


def undecodable(error: Exception) -> HandlerFailure:
    """Return the verdict on a body that cannot be decoded."""
    text = storable(f"the body cannot be decoded: {error}")[:2_000]
    return HandlerFailure("reject", text, "PERMANENT", error_class=type(error).__qualname__)
