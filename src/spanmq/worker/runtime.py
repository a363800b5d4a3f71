"""The worker: its pieces, how they are joined, and how they start and stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Protocol
from uuid import uuid4

from spanmq.body import Decoder
from spanmq.errors import HandlerStuckError, InvalidArgumentError
from spanmq.timeouts import with_timeouts
from spanmq.worker import log
from spanmq.worker.appetite import Appetite
from spanmq.worker.breaker import Breaker
from spanmq.worker.event import (
    HandlerOverran,
    MessageHandled,
    Observer,
    Seam,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from spanmq.worker.failure import Failure
from spanmq.worker.handler import look_at
from spanmq.worker.heartbeat import Heartbeat
from spanmq.worker.intake import Intake
from spanmq.worker.job import Gone, Holding, Job, Release, Verdict
from spanmq.worker.line import Line
from spanmq.worker.performing import Performer
from spanmq.worker.session import Session
from spanmq.worker.setting import Settings, forgiving
from spanmq.worker.settling import Settler
from spanmq.worker.slots import Slot, TaskSlots, ThreadSlots
from spanmq.worker.watch import Watch

# How long the last settlements may take, after the grace.
SETTLE_SECONDS: Final = 5.0
# Verdicts that wait for the database, in batches: with more, nothing is received.
BACKLOG_BATCHES: Final = 20


class Worker:
    """Receive messages of one queue or several, call a handler for each, and settle them.

    `handler(message)`, or `handler(message, connection)`: what it writes through the connection and the ack
    are one transaction. An `async def` runs in the event loop, with psycopg's AsyncConnection; a plain
    function in a thread, with its Connection. It returns: the message is acked. It raises: see Retry, Reject
    and docs/worker.md. The keyword arguments are the fields of Settings.

    Raises InvalidArgumentError, and InvalidHandlerError for what is no handler.
    """

    def __init__(
        self,
        queues: str | Iterable[str],
        handler: Callable[..., Any],
        *,
        dsn: str,
        name: str | None = None,
        observers: Iterable[Observer] = (log.write,),
        **settings: Any,
    ) -> None:
        try:
            self.settings = Settings(**settings)
        except TypeError as error:
            raise InvalidArgumentError(f"a worker has no such setting: {error}") from error
        self.queues = (queues,) if isinstance(queues, str) else tuple(queues)
        if not self.queues or len(set(self.queues)) != len(self.queues):
            raise InvalidArgumentError(f"a worker needs queues, each once, got {self.queues!r}")
        self.handler = look_at(handler, takes_batches=self.settings.in_batches)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:6]}"
        self._dsn = with_timeouts(dsn, self.settings.timeouts_passed, application_name="spanmq worker")
        self._seam = Seam(observers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[str] | None = None
        self._is_asked = False

    def run(self) -> None:
        """Work until SIGTERM, SIGINT or `stop`; raises what made it impossible to begin, or to go on."""
        asyncio.run(self.work())

    def stop(self, reason: str = "asked") -> None:
        """Take no more, and end in good order; from any thread."""
        self._is_asked = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._finish, reason)

    async def work(self, *, signals: bool = True) -> None:
        """Work until SIGTERM, SIGINT (not if `signals` is False) or `stop`.

        It takes no more then, waits up to `grace` seconds for handlers, and gives back what it still holds.
        A second signal ends the process at once.
        """
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        if self._is_asked:
            self._finish("asked")
        undo = self._listen_to_signals(self._loop) if signals else []
        engine = Engine(self)
        try:
            try:
                await engine.start(self._crash)
                reason = await self._end
            except BaseException as error:
                await engine.stop(type(error).__name__)
                raise
            await engine.stop(reason)
        finally:
            for number in undo:
                self._loop.remove_signal_handler(number)
            self._is_asked = False

    def _finish(self, reason: str) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(reason)

    def _crash(self, error: BaseException) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> list[int]:
        if threading.current_thread() is not threading.main_thread():
            return []
        numbers = [signal.SIGTERM, signal.SIGINT]
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, loop, number)
        return [*numbers]

    def _on_signal(self, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
        if self._end is not None and self._end.done():
            # The second one: as if nobody had been listening.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._finish(number.name)


class Piece(Protocol):
    """What runs beside the others, as a task."""

    async def start(self) -> asyncio.Task[None]:
        """Begin; give the task."""
        ...


class Engine:
    """The pieces of a worker that runs. Each has a start and a stop; the order is here."""

    def __init__(self, worker: Worker) -> None:
        settings = worker.settings
        self._worker = worker
        self._settings = settings
        self._seam = worker._seam
        decoder: Decoder = forgiving(settings.decoder)
        handler = worker.handler
        lends = settings.concurrency if handler.takes_connection else 0
        self._session = Session(
            worker._dsn,
            decoder=decoder,
            # Receives, settlements, heartbeats, housekeeping.
            pool_size=len(worker.queues) + 5 + (lends if handler.is_async else 0),
            threads=0 if handler.is_async else lends,
            patience=settings.patience_seconds,
            poll_interval=settings.poll_interval,
            pooler=settings.pooler,
            seam=self._seam,
        )
        self._settler = Settler(
            self._session,
            worker=worker.name,
            gather=settings.gather,
            seam=self._seam,
            on_settled=self._settled,
        )
        self._heartbeat = Heartbeat(
            self._session,
            lease_max=settings.lease_max,
            seam=self._seam,
            on_lost=self._lost,
        )
        performer = Performer(handler, self._session, settings.categories)
        kind = TaskSlots if handler.is_async else ThreadSlots
        self._slots: TaskSlots | ThreadSlots = kind(performer, self._ended)
        self._watch = Watch(
            self._slots,
            handler_timeout=settings.handler_timeout,
            lease_max=settings.lease_max,
            on_overrun=self._overran,
        )
        self._intakes = {queue: self._intake(queue) for queue in worker.queues}
        self._idle = asyncio.Event()
        self._crash: Callable[[BaseException], None] = lambda _: None
        self._is_stopping = False
        self._began = self._is_started = False

    async def start(self, crash: Callable[[BaseException], None]) -> None:
        """Connect, look at the queues, and begin; `crash` is told what nobody expected."""
        self._crash = self._settler.crash = crash
        await self._session.start()
        self._began = True
        await self._slots.start(self._settings.concurrency)
        pieces: tuple[Piece, ...] = (self._settler, self._heartbeat, self._watch, *self._intakes.values())
        for piece in pieces:
            (await piece.start()).add_done_callback(self._piece_ended)
        self._is_started = True
        self._seam.emit(WorkerStarted(self._worker.name, self._worker.queues))

    async def stop(self, reason: str) -> None:
        """Take no more; finish, or give back; settle; close."""
        self._is_stopping = True
        if self._is_started:
            self._seam.emit(WorkerStopping(self._worker.name, reason))
        if self._began:
            await asyncio.gather(*[intake.stop() for intake in self._intakes.values()])
            self._give_back_waiting()
            await self._finish_running()
            await self._watch.stop()
            await self._slots.stop()
            await self._settler.stop(SETTLE_SECONDS)
            await self._heartbeat.stop()
        await self._session.stop()
        if self._is_started:
            self._seam.emit(WorkerStopped(self._worker.name, self._settler.settled))

    def _intake(self, queue: str) -> Intake:
        settings = self._settings
        share = -(-settings.concurrency // len(self._worker.queues))
        each = settings.batch if settings.in_batches else 1
        intake = Intake(
            queue,
            self._session,
            lease=settings.lease,
            batch=settings.batch,
            takes_batches=settings.in_batches,
            # Each transaction settles its own.
            one_each=self._worker.handler.takes_connection and not settings.in_batches,
            poll_interval=settings.poll_interval,
            appetite=Appetite(
                concurrency=share * each,
                batch=settings.batch * (share if settings.in_batches else 1),
                call=settings.batch,
            ),
            breaker=Breaker(settings.breaker),
            line=Line(self._slots.add),
            seam=self._seam,
            on_lease=self._heartbeat.add,
            on_bad=self._ended,
        )
        backlog_max = settings.batch * BACKLOG_BATCHES
        intake.is_held_up = lambda: self._settler.backlog > backlog_max
        return intake

    # What the pieces report. All of this runs in the event loop.

    def _ended(self, job: Job, verdict: Verdict) -> None:
        """Take the verdict on a job that ended, overran, or was never begun."""
        intake = self._intakes[job.holding.queue]
        count = len(job.messages)
        succeeded = verdict is None or isinstance(verdict, Gone)
        if succeeded or isinstance(verdict, Failure):
            for message in job.messages:
                self._seam.emit(
                    MessageHandled(message.queue, message.message_id, message.attempt, job.seconds)
                )
            intake.appetite.record(job.seconds / count)
            is_dependency = isinstance(verdict, Failure) and verdict.category == "DEPENDENCY"
            intake.tell(change := intake.breaker.record(is_dependency, monotonic()))
            if change == "opened":
                self._settler.settle(job, verdict)
                self._leave(job, intake, succeeded=succeeded)
                self._give_back_waiting(intake.queue)
                return
        self._settler.settle(job, verdict)
        self._leave(job, intake, succeeded=succeeded)

    def _leave(self, job: Job, intake: Intake, *, succeeded: bool) -> None:
        intake.held -= len(job.messages)
        for other in intake.line.done(job, succeeded=succeeded and not self._is_stopping):
            self._settler.settle(other, Release())
            intake.held -= len(other.messages)
        intake.wake()
        if self._is_stopping and not any(each.held for each in self._intakes.values()):
            self._idle.set()

    def _settled(self, holding: Holding) -> None:
        self._heartbeat.settled(holding)
        self._intakes[holding.queue].wake()

    def _lost(self, holding: Holding) -> None:
        """Drop what waits of a lease that is another's now; what runs can't be undone, its ack is stale."""
        self._drop(lambda job: job.holding is holding)

    def _overran(self, slot: Slot, job: Job, seconds: float) -> None:
        job.seconds = seconds
        for message in job.messages:
            self._seam.emit(HandlerOverran(message.queue, message.message_id, message.attempt, seconds))
        error = f"the handler took longer than {seconds:.3g} s"
        self._ended(job, Failure("nack", error, "TRANSIENT", error_class="TimeoutError"))
        stuck = self._slots.abandon(slot, replace=True)
        if stuck > self._settings.concurrency:
            self._crash(
                HandlerStuckError(
                    f"{stuck} calls of the handler {self._worker.handler.name!r} overran and do not end",
                    hint="Let a supervisor start the worker again, and the handler give up by itself.",
                )
            )

    def _piece_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash(error)

    # Giving back.

    def _drop(self, chosen: Callable[[Job], bool]) -> None:
        for job in self._slots.take_back():
            if not chosen(job):
                self._slots.add(job)
            elif not job.is_decided:
                self._ended(job, Release())

    def _give_back_waiting(self, queue: str | None = None) -> None:
        """Release what nobody has begun, so that another worker gets it at once."""
        for intake in self._intakes.values():
            if queue in (None, intake.queue):
                for job in intake.line.drain():
                    self._settler.settle(job, Release())
                    intake.held -= len(job.messages)
        self._drop(lambda job: queue in (None, job.holding.queue))

    async def _finish_running(self) -> None:
        if any(intake.held for intake in self._intakes.values()):
            self._idle.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.grace):
                    await self._idle.wait()
        for slot, job, started_at in self._slots.running():
            job.seconds = monotonic() - started_at
            self._ended(job, Release())
            self._slots.abandon(slot, replace=False)
