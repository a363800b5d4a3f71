"""The parts of a running worker: how they are connected, started and stopped."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from spanmq.client.functions import begin_alone
from spanmq.codec.encryption import Unopened
from spanmq.errors import HandlerStuckError, SpanmqError
from spanmq.worker.breaker import BreakerState, Change
from spanmq.worker.cancelling import Canceller
from spanmq.worker.dividing import Divider
from spanmq.worker.event import (
    CallFailed,
    EventBus,
    HandlerOverran,
    HandlerSlow,
    MessageHandled,
    ShardJoined,
    ShardLeft,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from spanmq.worker.failure import Failure
from spanmq.worker.handler import Handler
from spanmq.worker.intake import Intake, undecodable
from spanmq.worker.isolation import Isolation
from spanmq.worker.job import Holding, Job, Release, Undecodable, Verdict
from spanmq.worker.limiter import ConcurrencyLimiter
from spanmq.worker.performing import UNBEGUN_SECONDS, Performer
from spanmq.worker.pool import Pool
from spanmq.worker.roster import Roster
from spanmq.worker.server import ServerConnection
from spanmq.worker.setting import Settings
from spanmq.worker.slots import Slot, TaskSlots, ThreadSlots, running
from spanmq.worker.watch import watch

# The time limit of the last settlements, after the grace period.
SETTLE_SECONDS: Final = 5.0
# The number of shards of a server that may be received from concurrently; connections are made only as they
# are needed.
SHARDS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Sharding:
    """A sharded queue, and the names of the shards to receive from (None: all, new ones too)."""

    queue: str
    shards: frozenset[str] | None = None


class Engine:
    """The parts of a running worker, and the order in which they start and stop."""

    def __init__(
        self,
        name: str,
        dsns: Mapping[str, str],
        queues: Sharding | tuple[str, ...],
        handler: Handler,
        settings: Settings,
        bus: EventBus,
    ) -> None:
        self._name = name
        self._settings = settings
        self._handler = handler
        self._bus = bus
        self._queues = queues
        # Includes former queues, whose last messages may still be in flight.
        self._intakes: dict[str, Intake] = {}
        self._pool = Pool(settings)
        self._places: dict[str, ServerConnection] = {}
        self._divider = Divider(
            self._pool,
            self._intakes,
            self._places,
            until_empty=settings.until_empty,
            on_task=self._piece_ended,
            holds_nothing=lambda: self._is_settled() and self._holds_no_more_than(0),
        )
        self._roster: Roster | None = None
        self._pieces: dict[str, asyncio.Task[None]] = {}
        performer = Performer(
            handler, lambda job: self._places[job.holding.queue].session, settings.categories
        )
        kind = TaskSlots if handler.is_async else ThreadSlots
        self._slots: TaskSlots | ThreadSlots = kind(performer, self._ended)
        # Kinds of messages of which only some are handled at once, of all queues together.
        self._limited: ConcurrencyLimiter | None = None
        if (limit_of := handler.limit_of) is not None:
            self._limited = ConcurrencyLimiter(self._slots.add, lambda job: limit_of(job.messages[0]))
        self._canceller = Canceller(
            self._slots,
            lambda: [each.limiter for each in self._intakes.values()] + [*filter(None, [self._limited])],
            lambda queue: self._places[queue].session,
            bus,
            self._piece_ended,
        )
        self._servers = {
            server: ServerConnection(
                server,
                dsn,
                settings,
                handler,
                queues=SHARDS_MAX if isinstance(queues, Sharding) else len(queues),
                intakes=self._intakes,
                jobs=lambda: running(self._slots.slots),
                worker=name,
                bus=bus,
                judge=performer.judge,
                on_settled=self._settled,
                on_lost=self._lost,
                on_extended=self._canceller.find,
                on_cancel=self._canceller.search,
                on_ready=self._divider.ready,
                on_policy=self._learn_policy,
                is_busy=self._slots.is_full,
            )
            for server, dsn in dsns.items()
        }
        self._divider.servers = self._servers.values()
        self._isolation = self._divider.isolation = Isolation(
            drain=self._give_back_waiting,
            is_empty=self._holds_no_more_than,
            is_settled=self._is_settled,
            begin=self._begin_alone,
            run=self._slots.add if self._limited is None else self._limited.add,
            decide=self._ended,
            resume=self._divider.divide_soon,
        )
        self._idle = asyncio.Event()
        self._crash: Callable[[BaseException], None] = lambda _: None
        self._is_stopping = False
        self._began = self._is_started = False
        # Calls of the handler that ended, by their messages.
        self.handled = 0

    async def start(
        self, crash: Callable[[BaseException], None], finish: Callable[[str], None] = lambda _: None
    ) -> None:
        """Connect, check the queues, and start.

        `crash` is called with unexpected errors, and `finish` with the reason when a worker `until_empty` is done, or
        a command stops it.
        """
        self._crash = self._slots.crash = crash
        for server in self._servers.values():
            server.reporter.finish = finish
            server.session.crash = server.settler.crash = server.poller.crash = crash
            if not isinstance(self._queues, Sharding):
                server.session.queue = self._queues[0]
            await server.session.start()
        self._began = True
        places = await self._find_queues()
        for _ in range(self._settings.concurrency):
            self._slots.open()
        for name, server in self._servers.items():
            (await server.settler.start()).add_done_callback(self._piece_ended)
            self._begin(f"heartbeat {name}", server.heartbeat.run())
        settings = self._settings
        overruns = watch(
            self._slots,
            handler_timeout=self._settings.handler_timeout,
            timeout_of=self._handler.timeout_of,
            lease_max=self._settings.lease_max,
            on_overrun=self._overran,
            slow_after=settings.slow_after,
            slow_share=settings.slow_share,
            usual_of=self._usual_of,
            on_slow=self._is_slow,
        )
        self._begin("watch", overruns)
        self._begin("isolation", self._isolation.run())
        await self._receive_from(places)
        if self._roster is not None:
            self._begin("roster", self._roster.run())
        for name, server in self._servers.items():
            self._begin(f"poller {name}", server.poller.run())
            self._begin(f"reporter {name}", server.reporter.run())
        self._is_started = True
        self._bus.emit(WorkerStarted(self._name, tuple(places)))
        self._divider.begin(finish)

    def begin_no_more(self) -> None:
        """Call no further handler; also from a signal that comes while one blocks the event loop."""
        self._slots.is_ending = True

    async def stop(self, reason: str) -> None:
        """Receive no more; finish or release messages; settle; close."""
        self.begin_no_more()
        self._is_stopping = self._divider.is_stopped = True
        if self._is_started:
            self._bus.emit(WorkerStopping(self._name, reason))
        if self._began:
            await self._end("roster", *[f"poller {name}" for name in self._servers])
            await asyncio.gather(*[server.poller.stop() for server in self._servers.values()])
            await asyncio.gather(*[intake.stop() for intake in self._intakes.values()])
            self._give_back_waiting()
            self._give_back_reserved(lambda _: True)
            await self._finish_running()
            await self._end("watch")
            await self._slots.stop()
            servers = self._servers.values()
            await asyncio.gather(*[server.settler.stop(SETTLE_SECONDS) for server in servers])
            await self._end(*self._pieces)
            if self._is_started:
                await asyncio.gather(*[server.reporter.report_end() for server in servers])
        await asyncio.gather(*[server.session.stop() for server in self._servers.values()])
        if self._is_started:
            count = sum(server.settler.settled for server in self._servers.values())
            self._bus.emit(WorkerStopped(self._name, count))

    def breakers(self) -> dict[str, BreakerState]:
        """Return the state of the breaker of each queue that is received from."""
        # An atomic copy: the event loop may add an intake meanwhile.
        intakes = [*self._intakes.items()]
        return {queue: intake.breaker.state for queue, intake in intakes if not intake.is_stopped}

    # Queues, which change if they are shards.

    async def _find_queues(self) -> dict[str, str]:
        if not isinstance(self._queues, Sharding):
            [server] = self._servers
            return dict.fromkeys(self._queues, server)
        sessions = {name: server.session for name, server in self._servers.items()}
        self._roster = Roster(self._queues.queue, sessions, self._queues.shards, self._follow)
        return await self._roster.begin()

    async def _follow(self, wanted: dict[str, str]) -> None:
        """Receive from these shards from now on."""
        for queue, intake in self._intakes.items():
            if not intake.is_stopped and queue not in wanted:
                self._places[queue].poller.remove(queue)
                self._pool.leave(queue)
                await intake.stop()
                self._bus.emit(ShardLeft(queue))
        for queue, server_name in wanted.items():
            if queue not in self._intakes or self._intakes[queue].is_stopped:
                await self._receive_from({queue: server_name})
                self._bus.emit(ShardJoined(queue))

    async def _receive_from(self, places: Mapping[str, str]) -> None:
        """Receive from these queues of these servers from now on."""
        by_server: dict[str, list[str]] = {}
        for queue, server_name in places.items():
            server = self._servers[server_name]
            if self._places.get(queue) is not server:
                self._places[queue] = server
                server.session.queue = queue
                self._intakes[queue] = self._intake(queue, server)
            by_server.setdefault(server_name, []).append(queue)
        for server_name, queues in by_server.items():
            await self._servers[server_name].poller.add(queues)
            for queue in queues:
                self._intakes[queue].is_stopped = False
                self._pool.join(queue)

    def _begin(self, name: str, run: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(run, name=f"spanmq {name}")
        task.add_done_callback(self._piece_ended)
        self._pieces[name] = task

    async def _end(self, *names: str) -> None:
        tasks = [self._pieces.pop(name) for name in names if name in self._pieces]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _intake(self, queue: str, server: ServerConnection) -> Intake:
        settings, handler = self._settings, self._handler
        intake = Intake(
            queue=queue,
            session=server.session,
            settings=settings,
            # Each transaction settles its own message.
            one_each=handler.takes_connection and not settings.in_batches,
            limiter=ConcurrencyLimiter(self._slots.add if self._limited is None else self._limited.add),
            share=self._pool.join(queue),
            isolation=self._isolation,
            bus=self._bus,
            on_lease=server.heartbeat.add,
            on_progress=server.reporter.report_soon,
            on_due=self._divider.ready,
            on_decided=self._decide,
            on_received=self._divider.received,
        )
        limiters = [intake.limiter] if self._limited is None else [intake.limiter, self._limited]
        intake.share.parked = lambda: sum(limiter.parked[queue] for limiter in limiters)
        return intake

    def _learn_policy(self, queue: str, is_ordered: bool) -> None:
        if queue in self._intakes:
            self._intakes[queue].is_ordered = is_ordered

    # Reports of the parts. All of these run in the event loop.

    def _ended(self, job: Job, verdict: Verdict) -> None:
        """Process the verdict on a job that ended, overran, or was never begun."""
        intake = self._intakes[job.holding.queue]
        if job.progress is not None or job.is_slow:
            job.holding.on_progress()  # it is shown no longer
        if job.is_cancelled and isinstance(verdict, Failure):
            verdict = Release()  # which ends a cancelled message
        if not isinstance(verdict, Release):
            failure = verdict if isinstance(verdict, Failure) else None
            self.handled += len(job.messages)
            self._places[job.holding.queue].reporter.record(job, failed=failure is not None)
            if self._bus.hears_routine():
                for message in job.messages:
                    self._bus.emit(
                        MessageHandled(
                            message.queue,
                            message.message_id,
                            message.attempt,
                            job.seconds,
                            self._handler.task_of(message),
                        )
                    )
            intake.share.record(job.seconds / len(job.messages), is_retry=job.retries > 0)
            self._breaker_changed(intake, intake.judged(job, failure))
        self._decide(job, verdict)

    def _decide(self, job: Job, verdict: Verdict) -> None:
        """Settle a job, handled or not, and make room for others."""
        intake = self._intakes[job.holding.queue]
        self._settle(job, verdict)
        change = intake.let_go(job)
        if self._limited is not None:
            self._limited.done(job)
        # The messages behind a single one that ends as cancelled stay leased.
        is_end = not isinstance(verdict, Failure | Release) or (job.is_cancelled and len(job.messages) == 1)
        succeeded = is_end and not self._is_stopping
        for other in intake.limiter.done(job, succeeded=succeeded):
            other.is_behind = True
            self._settle(other, Release())
            change = intake.let_go(other) or change
        self._breaker_changed(intake, change)
        self._divider.divide_soon()
        self._isolation.changed()
        if self._is_stopping and not any(each.share.held for each in self._intakes.values()):
            self._idle.set()

    def _breaker_changed(self, intake: Intake, change: Change | None) -> None:
        if change is None:
            return
        intake.tell(change)
        self._divider.gate(intake)
        if change != "closed":
            self._give_back_waiting(intake.queue)
            self._give_back_reserved(lambda job: job.holding.queue == intake.queue)

    def _settle(self, job: Job, verdict: Verdict) -> None:
        self._places[job.holding.queue].settler.settle(job, verdict)

    def _settled(self, holding: Holding, verdict: Verdict) -> None:
        server = self._places[holding.queue]
        server.heartbeat.settled(holding)
        if isinstance(verdict, Failure | Release):
            server.poller.poll_soon()  # which tells when the returned messages become visible
        self._divider.settled()
        self._isolation.changed()

    def _lost(self, holding: Holding) -> None:
        """Drop the messages of a lost lease, and cancel their handlers: other workers may have them by now."""
        self._drop(lambda job: job.holding is holding)
        self._give_back_reserved(lambda job: job.holding is holding)
        for slot, job, started_at in running(self._slots.slots):
            if job.holding is holding:
                job.is_cancelled = True  # plain functions ask
                if self._handler.is_async:
                    self._cancel(slot, job, started_at, replace=True)

    def _cancel(self, slot: Slot, job: Job, started_at: float, *, replace: bool) -> None:
        job.seconds = monotonic() - started_at
        self._ended(job, Release())
        self._slots.abandon(slot, replace=replace)

    def _overran(self, slot: Slot, job: Job, seconds: float) -> None:
        job.seconds = seconds
        for message in job.messages:
            task = self._handler.task_of(message)
            self._bus.emit(HandlerOverran(message.queue, message.message_id, message.attempt, seconds, task))
        error = f"the handler took longer than {seconds:.3g} s"
        failure: Failure | Release = Failure("nack", error, "TRANSIENT", error_class="TimeoutError")
        if self._handler.judge is not None:
            failure = self._handler.judge(TimeoutError(error), job.messages[0])
        self._ended(job, failure)
        stuck = self._slots.abandon(slot, replace=True)
        if stuck > self._settings.concurrency:
            self._crash(
                HandlerStuckError(
                    f"{stuck} calls of the handler {self._handler.name!r} overran and have not ended",
                    hint="Run the worker under a supervisor that restarts it, and give the handler a time limit.",
                )
            )

    def _usual_of(self, job: Job) -> float | None:
        task = self._handler.task_of(job.messages[0])
        return self._places[job.holding.queue].reporter.usual.seconds(task)

    def _is_slow(self, job: Job, seconds: float, usual: float | None, limit: float | None) -> None:
        [message, *_] = job.messages
        task = self._handler.task_of(message)
        self._bus.emit(
            HandlerSlow(message.queue, message.message_id, message.attempt, seconds, task, usual, limit)
        )
        job.holding.on_progress()  # a report shows it

    def _piece_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash(error)

    # Messages that are handled alone.

    def _is_settled(self) -> bool:
        return not any(server.settler.backlog for server in self._servers.values())

    def _holds_no_more_than(self, count: int) -> bool:
        intakes = self._intakes.values()
        return (
            not any(each.is_receiving for each in intakes)
            and sum(each.share.held for each in intakes) <= count
        )

    async def _begin_alone(self, job: Job) -> Verdict | bool:
        """Begin a reserved delivery; return True, or the verdict on a message that no handler gets."""
        [reserved] = job.messages
        session = self._places[reserved.queue].session
        call = begin_alone(session.codec, reserved)
        try:
            job.messages = await session.run(lambda client: client.admin.run(call)) or job.messages
        except SpanmqError as error:
            # If it has begun all the same, the release takes the attempt back.
            self._bus.emit(CallFailed(reserved.queue, " ".join(str(error).split()), UNBEGUN_SECONDS))
            await asyncio.sleep(UNBEGUN_SECONDS)
            return Release()
        if job.messages[0] is reserved:
            return Release()  # its lease has ended
        body = job.messages[0].body
        if isinstance(body, Unopened):
            return Failure("nack", body.error.message, error_class=type(body.error).__name__)
        return undecodable(body.error) if type(body) is Undecodable else True

    # Releasing messages.

    def _drop(self, chosen: Callable[[Job], bool]) -> None:
        for job in self._slots.take_back():
            if not chosen(job):
                self._slots.add(job)
            elif not job.is_decided:
                self._ended(job, Release())

    def _give_back_waiting(self, queue: str | None = None) -> None:
        """Release messages that no handler has begun, so that another worker can receive them at once."""
        for intake in self._intakes.values():
            if queue in (None, intake.queue):
                for job in intake.limiter.drain():
                    self._settle(job, Release())
                    self._breaker_changed(intake, intake.let_go(job))
        if self._limited is not None:
            for job in self._limited.drain(lambda job: queue in (None, job.holding.queue)):
                self._ended(job, Release())
        self._drop(lambda job: queue in (None, job.holding.queue))

    def _give_back_reserved(self, chosen: Callable[[Job], bool]) -> None:
        """Release messages that wait to be handled alone; they stay so, and this costs them no attempt."""
        for job in self._isolation.take_back(chosen):
            self._ended(job, Release())

    async def _finish_running(self) -> None:
        if any(intake.share.held for intake in self._intakes.values()):
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.grace):
                    await self._idle.wait()
        for slot, job, started_at in running(self._slots.slots):
            self._cancel(slot, job, started_at, replace=False)
