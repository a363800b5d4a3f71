"""The parts of a running worker: how they are connected, started and stopped, and the one loop that serves them."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from spanmq.codec.body import Decoder
from spanmq.errors import HandlerStuckError
from spanmq.worker.breaker import BreakerState
from spanmq.worker.calls import begin_alone, extend, find_cancelled, receive
from spanmq.worker.effect import (
    Abandon,
    BeginAlone,
    Cancel,
    Crash,
    Extend,
    FindCancelled,
    Finish,
    Later,
    PassOn,
    Poll,
    Receive,
    Report,
    SetRoom,
    Settle,
)
from spanmq.worker.event import EventBus, WorkerStarted, WorkerStopped, WorkerStopping
from spanmq.worker.handler import Handler
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import GraceEnded, ReceivesEnded, Started, Stopping
from spanmq.worker.machine import Machine
from spanmq.worker.observing.reporting import Reporter
from spanmq.worker.receiving.poller import Poller
from spanmq.worker.receiving.roster import Roster, join
from spanmq.worker.receiving.scheduler import RECEIVES_MAX
from spanmq.worker.running.performing import Performer
from spanmq.worker.running.slots import TaskSlots, ThreadSlots
from spanmq.worker.session import Session
from spanmq.worker.setting import Settings, forgiving
from spanmq.worker.settling.settler import Settler

# How long a stop waits for a receive that is under way, if the server does not answer.
RECEIVE_SECONDS: Final = 3.0
# The time limit of the last settlements, after the grace period.
SETTLE_SECONDS: Final = 5.0
# The number of shards of a server that may be received from concurrently; connections are made only as they
# are needed.
SHARDS_MAX: Final = 100
# Connections beside those of receives and handlers: settlements, heartbeats, maintenance, polls of shards.
LENT_BESIDE: Final = 6


@dataclass(frozen=True, slots=True)
class Sharding:
    """A sharded queue, and the names of the shards to receive from (None: all, new ones too)."""

    queue: str
    shards: frozenset[str] | None = None


class Engine:
    """Carries out what Machine decides about the events that the parts put into the inbox.

    The future `end` ends with the reason when a worker `until_empty` is done, or a command stops it, and with an
    unexpected error.
    """

    def __init__(
        self,
        name: str,
        dsns: Mapping[str, str],
        queues: Sharding | tuple[str, ...],
        handler: Handler,
        settings: Settings,
        bus: EventBus,
        end: asyncio.Future[str],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._name = name
        self._settings = settings
        self._handler = handler
        self._bus = bus
        self._queues = queues
        self._end = end
        self._clock = clock
        self._inbox = inbox = Inbox(clock)
        # By queue.
        self._session_of: dict[str, Session] = {}
        performer = Performer(handler, self._session_of, settings.categories)
        kind = TaskSlots if handler.is_async else ThreadSlots
        self._slots: TaskSlots | ThreadSlots = kind(performer, inbox, clock)
        self._machine = machine = Machine(settings, handler, self._slots, dsns, bus, inbox)
        # By server.
        count = SHARDS_MAX if isinstance(queues, Sharding) else len(queues)
        self._sessions = {
            server: _session_of(server, dsn, settings, handler, count, bus, inbox)
            for server, dsn in dsns.items()
        }
        self._settlers = {
            server: Settler(session, worker=name, handler=handler, performer=performer, bus=bus, inbox=inbox)
            for server, session in self._sessions.items()
        }
        self._pollers = {
            server: Poller(
                server=server, session=session, settings=settings, bus=bus, inbox=inbox, clock=clock
            )
            for server, session in self._sessions.items()
        }
        self._reporters = {
            server: Reporter(
                server=server,
                session=session,
                worker=name,
                concurrency=settings.concurrency,
                kind_of=handler.kind_of,
                sources=machine.sources,
                slots=self._slots,
                times=machine.times,
                inbox=inbox,
                clock=clock,
            )
            for server, session in self._sessions.items()
        }
        self._pieces: dict[str, asyncio.Task[None]] = {}
        # Receives, settlements and other calls that are under way.
        self._receives: set[asyncio.Task[None]] = set()
        self._calls: set[asyncio.Task[None]] = set()
        # Set after each turn of the loop.
        self._turned = asyncio.Event()
        self._began = self._is_started = False
        self._do: Mapping[type, Callable[[Any], None]] = {
            Receive: self._receive,
            Settle: lambda effect: self._call(self._settlers[effect.server].settle(effect), "settlement"),
            Extend: self._extend,
            FindCancelled: self._find_cancelled,
            BeginAlone: self._begin_alone,
            Cancel: lambda effect: self._slots.cancel(effect.slot),
            Abandon: self._abandon,
            Poll: self._poll,
            SetRoom: lambda effect: self._pollers[effect.server].room(effect.has_room),
            PassOn: lambda effect: self._pollers[effect.server].pass_on(
                effect.queues, is_busy=effect.is_busy
            ),
            Report: lambda effect: self._reporters[effect.server].report_soon(),
            Later: self._put_later,
            Finish: lambda effect: self._finish(effect.reason),
            Crash: lambda effect: self._crash(effect.error),
        }

    @property
    def handled(self) -> int:
        """Calls of the handler that ended, by their messages."""
        return self._machine.handled

    async def start(self) -> None:
        """Connect, check the queues, and start."""
        for session in self._sessions.values():
            if not isinstance(self._queues, Sharding):
                session.warm_for(self._queues[0])
            await session.start()
        self._began = True
        roster: Roster | None = None
        if isinstance(self._queues, Sharding):
            queue, shards = self._queues.queue, self._queues.shards
            roster = Roster(queue, self._sessions, self._pollers, shards, self._inbox)
            places = await roster.begin()
        else:
            [server] = self._sessions
            places = dict.fromkeys(self._queues, server)
        for _ in range(self._settings.concurrency):
            self._slots.open()
        await join(places, self._pollers, self._inbox)
        self._pieces["loop"] = self._inbox.begin(self._run(), "loop")
        if roster is not None:
            self._pieces["roster"] = self._inbox.begin(roster.run(), "roster")
        for name in self._sessions:
            self._pieces[f"poller {name}"] = self._inbox.begin(self._pollers[name].run(), f"poller {name}")
            self._pieces[f"reporter {name}"] = self._inbox.begin(
                self._reporters[name].run(), f"reporter {name}"
            )
        self._is_started = True
        self._bus.emit(WorkerStarted(self._name, tuple(places)))
        self._inbox.put(Started())

    def begin_no_more(self) -> None:
        """Call no further handler; also from a signal that comes while one blocks the event loop."""
        self._slots.begin_no_more()

    async def stop(self, reason: str) -> None:
        """Receive no more; finish or release messages; settle; close."""
        self.begin_no_more()
        if self._is_started:
            self._bus.emit(WorkerStopping(self._name, reason))
        if self._began:
            self._inbox.put(Stopping())
            await self._end_pieces("roster", *[f"poller {name}" for name in self._pollers])
            await asyncio.gather(*[poller.stop() for poller in self._pollers.values()])
            await _end_within(self._receives, RECEIVE_SECONDS)
            self._inbox.put(ReceivesEnded())
            await self._until(lambda: not self._machine.held, self._settings.grace)
            self._inbox.put(GraceEnded())
            await self._slots.stop()
            await self._until(lambda: not self._machine.backlog, SETTLE_SECONDS)
            await self._end_pieces(*self._pieces)
            await _end_within(self._calls, 0)
            if self._is_started:
                await asyncio.gather(*[reporter.report_end() for reporter in self._reporters.values()])
        await asyncio.gather(*[session.stop() for session in self._sessions.values()])
        if self._is_started:
            self._bus.emit(WorkerStopped(self._name, self._machine.settled))

    def breakers(self) -> dict[str, BreakerState]:
        """Return the state of the breaker of each queue that is received from."""
        # An atomic copy: the event loop may add a queue meanwhile.
        sources = [*self._machine.sources.items()]
        return {queue: source.breaker.state for queue, source in sources if not source.is_stopped}

    # The loop.

    def _take(self, events: list[Any]) -> None:
        """Decide about events of the inbox."""
        try:
            self._machine.take(events, self._clock())
        except Exception as error:  # noqa: BLE001, any is a bug, for which the worker ends
            self._crash(error)

    def _turn(self) -> float:
        """Do what is decided; return when to do that again, if no event comes before."""
        for effect in self._machine.turn(self._clock()):
            self._do.get(type(effect), self._bus.emit)(effect)
        self._turned.set()
        return self._machine.due_at

    async def _run(self) -> None:
        try:
            await self._inbox.serve(self._take, self._turn)
        except Exception as error:  # noqa: BLE001, any is a bug, for which the worker ends
            self._crash(error)

    async def _until(self, is_true: Callable[[], bool], seconds: float) -> None:
        """Wait for a turn of the loop after which something is true."""
        loop = self._pieces.get("loop")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while loop is not None and not loop.done():
                    self._turned.clear()
                    turned = asyncio.ensure_future(self._turned.wait())
                    await asyncio.wait([turned, loop], return_when=asyncio.FIRST_COMPLETED)
                    turned.cancel()
                    if is_true():
                        return

    async def _end_pieces(self, *names: str) -> None:
        tasks = [self._pieces.pop(name) for name in names if name in self._pieces]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _finish(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    def _crash(self, error: BaseException) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    # What is done.

    def _receive(self, effect: Receive) -> None:
        session = self._sessions[self._machine.sources[effect.queue].server]
        self._session_of[effect.queue] = session
        handler, settings = self._handler, self._settings
        # Each transaction settles its own message.
        one_each = handler.takes_connection and not settings.in_batches
        run = receive(effect, session, self._inbox, self._clock, lease=settings.lease, one_each=one_each)
        task = self._inbox.begin(run, f"receive {effect.queue}")
        self._receives.add(task)
        task.add_done_callback(self._receives.discard)

    def _call(self, run: Coroutine[Any, Any, None], name: str) -> None:
        task = self._inbox.begin(run, name)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _extend(self, effect: Extend) -> None:
        session = self._session_of[effect.lease.queue]
        self._call(extend(effect, session, self._inbox, self._clock), "extension")

    def _find_cancelled(self, effect: FindCancelled) -> None:
        session = self._session_of[effect.lease.queue]
        self._call(find_cancelled(effect, session, self._inbox, self._bus), "cancel")

    def _begin_alone(self, effect: BeginAlone) -> None:
        session = self._session_of[effect.job.lease.queue]
        self._call(begin_alone(effect.job, session, self._inbox, self._bus), "alone")

    def _abandon(self, effect: Abandon) -> None:
        stuck = self._slots.abandon(effect.slot, replace=effect.replace)
        if effect.replace and stuck > self._settings.concurrency:
            self._crash(
                HandlerStuckError(
                    f"{stuck} calls of the handler {self._handler.name!r} overran and have not ended",
                    hint="Run the worker under a supervisor that restarts it, and give the handler a time limit.",
                )
            )

    def _poll(self, effect: Poll) -> None:
        poller = self._pollers[effect.server]
        if effect.received is None:
            poller.poll_soon()
        else:
            poller.received(effect.received)

    def _put_later(self, effect: Later) -> None:
        seconds = max(effect.at - self._clock(), 0.0)
        asyncio.get_running_loop().call_later(seconds, self._inbox.put, effect.event)


async def _end_within(tasks: Collection[asyncio.Task[None]], seconds: float) -> None:
    """Wait for tasks, cancel those that have not ended within `seconds`, and wait for these."""
    if tasks := [*tasks]:
        _, left = await asyncio.wait(tasks, timeout=seconds)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _session_of(
    server: str, dsn: str, settings: Settings, handler: Handler, queues: int, bus: EventBus, inbox: Inbox
) -> Session:
    """Return the session of a server for a number of queues."""
    decoder: Decoder = forgiving(settings.decoder)
    # A handler that dispatches may begin a transaction for any message. One that overran keeps its
    # connection, beside its successor.
    lends = 2 * settings.concurrency if handler.takes_connection or handler.takes_delivery else 0
    return Session(
        dsn=dsn,
        decoder=decoder,
        pool_size=min(queues, RECEIVES_MAX) + LENT_BESIDE + (lends if handler.is_async else 0),
        threads=lends if handler.uses_threads or not handler.is_async else 0,
        timeouts=settings.timeouts_passed,
        pooler=settings.pooler,
        password=settings.password,
        bus=bus,
        inbox=inbox,
        server=server or None,
    )
