"""The slots in which handlers run: a fixed number of tasks of the event loop, or of threads.

Both kinds have the same interface: open, add, take_back, is_full, slots, is_ending, crash, abandon, stop. A slot whose
handler overran is abandoned: it ends when its handler does, and a new slot replaces it. Verdicts are reported in the
event loop.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

from spanmq.client.handled import HANDLED
from spanmq.worker.job import Job, Release, Verdict
from spanmq.worker.performing import Performer
from spanmq.worker.threads import Returned

OnEnd = Callable[[Job, Verdict], None]
# Called with an error that is not a handler's: a bug, for which the worker must stop.
Crash = Callable[[BaseException], None]

# How long handlers that never await may occupy the event loop.
TURN_SECONDS: Final = 0.005


class Slot:
    """One handler at a time."""

    __slots__ = ("is_abandoned", "job", "started_at", "task", "thread")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.started_at = 0.0
        self.is_abandoned = False
        self.task: asyncio.Task[None] | None = None
        self.thread: int | None = None

    def begin(self, job: Job) -> bool:
        """Take a job; return whether it is still undecided and its lease still valid."""
        self.started_at = monotonic()
        self.job = job
        is_ended = job.is_decided or job.is_cancelled
        return not (is_ended or job.holding.is_lost or self.started_at >= job.holding.ends_at)


def running(slots: Iterable[Slot]) -> Iterator[tuple[Slot, Job, float]]:
    """Yield the running jobs, and since when they run."""
    # An atomic copy: a thread that ends removes its slot meanwhile.
    for slot in tuple(slots):
        if (job := slot.job) is not None and not job.is_decided:
            yield slot, job, slot.started_at


class TaskSlots:
    """Slots for async handlers."""

    def __init__(self, performer: Performer, on_end: OnEnd) -> None:
        self._performer = performer
        self._on_end = on_end
        self.crash: Crash = lambda _: None
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self.slots: set[Slot] = set()
        # Whether no further job begins: those that wait are released.
        self.is_ending = False

    def add(self, job: Job) -> None:
        """Queue a job for the next free slot."""
        self._jobs.put_nowait(job)

    def take_back(self) -> list[Job]:
        """Remove and return the jobs that no slot has begun."""
        return [self._jobs.get_nowait() for _ in range(self._jobs.qsize())]

    def is_full(self) -> bool:
        """Return, when a handler has ended, whether its slot has another job at once."""
        return not self._jobs.empty()

    def abandon(self, slot: Slot, *, replace: bool) -> int:
        """Cancel a handler whose job is decided; return the number of handlers that have not ended."""
        slot.is_abandoned = True
        if slot.task is not None:
            slot.task.cancel()
        if replace:
            self.open()
        return sum(each.is_abandoned for each in self.slots)

    async def stop(self) -> None:
        """Cancel the running handlers."""
        tasks = [slot.task for slot in self.slots if slot.task is not None]
        for slot in self.slots:
            slot.is_abandoned = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def open(self) -> None:
        """Create a slot."""
        slot = Slot()
        self.slots.add(slot)
        slot.task = asyncio.create_task(self._run(slot), name="spanmq slot")
        slot.task.add_done_callback(self._slot_ended)

    def _slot_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crash(error)

    async def _run(self, slot: Slot) -> None:
        perform, judge = self._performer.perform, self._performer.judge
        try:
            turn_began_at = monotonic()
            while not slot.is_abandoned:
                job = await self._jobs.get() if self._jobs.empty() else self._jobs.get_nowait()
                verdict: Verdict = Release()
                if slot.begin(job) and not self.is_ending:
                    HANDLED.set(job)
                    try:
                        verdict = await perform(job)
                    except asyncio.CancelledError as error:
                        if slot.is_abandoned:
                            raise
                        verdict = judge(error, job)  # raised by the handler, or it was cancelled
                    except BaseException as error:  # noqa: BLE001, SystemExit too is only this handler's
                        verdict = judge(error, job)
                    finally:
                        job.is_over = True
                        HANDLED.set(None)
                slot.job = None
                now = monotonic()
                if not job.is_decided:
                    job.seconds = now - slot.started_at
                    self._on_end(job, verdict)
                if slot.task is not None and slot.task.cancelling():
                    return
                if now - turn_began_at > TURN_SECONDS:
                    await asyncio.sleep(0)
                    turn_began_at = monotonic()
        finally:
            self.slots.discard(slot)
            if not slot.is_abandoned:
                self.open()  # the handler's message was cancelled, or it cancelled its own task, which ends


class ThreadSlots:
    """Slots for plain functions, a daemon thread each, so that one that never returns keeps no process alive."""

    def __init__(self, performer: Performer, on_end: OnEnd) -> None:
        self._performer = performer
        self._on_end = on_end
        self.crash: Crash = lambda _: None
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self.slots: set[Slot] = set()
        self.is_ending = False
        self._ended: Returned[tuple[Job, Verdict]] = Returned(self._end)

    def add(self, job: Job) -> None:
        """Queue a job for the next free slot."""
        self._jobs.put(job)

    def take_back(self) -> list[Job]:
        """Remove and return the jobs that no slot has begun."""
        jobs = []
        with contextlib.suppress(Empty):
            while True:
                if (job := self._jobs.get_nowait()) is not None:
                    jobs.append(job)
        return jobs

    def is_full(self) -> bool:
        """Return, when a handler has ended, whether its slot has another job at once; it may have begun that."""
        return not self._jobs.empty() or all(each.job is not None for each in tuple(self.slots))

    def abandon(self, slot: Slot, *, replace: bool) -> int:
        """Abandon a thread whose job is decided; return the number of threads that have not ended."""
        slot.is_abandoned = True
        if replace:
            self.open()
        # An atomic copy: a thread that ends removes its slot meanwhile.
        return sum(each.is_abandoned for each in tuple(self.slots))

    async def stop(self) -> None:
        """End the idle threads."""
        for _ in tuple(self.slots):
            self._jobs.put(None)

    def open(self) -> None:
        """Create a slot."""
        slot = Slot()
        self.slots.add(slot)
        threading.Thread(target=self._run, args=(slot,), name="spanmq slot", daemon=True).start()

    def _run(self, slot: Slot) -> None:
        call, judge = self._performer.call, self._performer.judge
        slot.thread = threading.get_ident()
        while not slot.is_abandoned and (job := self._jobs.get()) is not None:
            verdict: Verdict = Release()
            if slot.begin(job) and not self.is_ending:
                HANDLED.set(job)
                try:
                    verdict = call(job)
                except BaseException as error:  # noqa: BLE001, SystemExit too is only this handler's
                    verdict = judge(error, job)
                job.is_over = True
            if not job.is_decided:
                job.seconds = monotonic() - slot.started_at
            slot.job = None
            self._ended.put((job, verdict))
        self.slots.discard(slot)

    def _end(self, ended: tuple[Job, Verdict]) -> None:
        job, verdict = ended
        if not job.is_decided:
            try:
                self._on_end(job, verdict)
            except Exception as error:  # noqa: BLE001, any is a bug
                self.crash(error)
