"""The slots in which handlers run: a fixed number of tasks of the event loop, or of threads.

Both kinds have the same interface: open, add, take_back, running, begin_no_more, abandon, stop. A slot whose handler
overran is abandoned: it ends when its handler does, and a new slot replaces it. Verdicts are put into the inbox.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

from spanmq.client.current_handler import CURRENT_HANDLER
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import HandlerEnded
from spanmq.worker.job import Job, Released, Slot, Verdict, running
from spanmq.worker.running.performing import Performer

# How long handlers that never await may occupy the event loop.
TURN_SECONDS: Final = 0.005


class TaskSlots:
    """Slots for async handlers."""

    def __init__(self, performer: Performer, inbox: Inbox, clock: Callable[[], float] = monotonic) -> None:
        self._performer = performer
        self._inbox = inbox
        self._clock = clock
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._slots: set[Slot] = set()
        # Whether no further job begins: those that wait are released.
        self._is_ending = False

    def add(self, job: Job) -> None:
        """Queue a job for the next free slot."""
        self._jobs.put_nowait(job)

    def take_back(self) -> list[Job]:
        """Remove and return the jobs that no slot has begun."""
        return [self._jobs.get_nowait() for _ in range(self._jobs.qsize())]

    def running(self) -> Iterator[tuple[Slot, Job, float]]:
        """Yield the running jobs, and since when they run."""
        return running(self._slots)

    def begin_no_more(self) -> None:
        """Begin no further job; from any thread."""
        self._is_ending = True

    def cancel(self, slot: Slot) -> None:
        """Cancel a handler, whose end is waited for."""
        if slot.task is not None:
            slot.task.cancel()

    def abandon(self, slot: Slot, *, replace: bool) -> int:
        """Cancel a handler whose job is decided; return the number of handlers that have not ended."""
        slot.is_abandoned = True
        if slot.task is not None:
            slot.task.cancel()
        if replace:
            self.open()
        return sum(slot.is_abandoned for slot in self._slots)

    async def stop(self) -> None:
        """Cancel the running handlers."""
        tasks = [slot.task for slot in self._slots if slot.task is not None]
        for slot in self._slots:
            slot.is_abandoned = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def open(self) -> None:
        """Create a slot."""
        slot = Slot()
        self._slots.add(slot)
        slot.task = self._inbox.begin(self._run(slot), "slot")

    async def _run(self, slot: Slot) -> None:
        perform, judge, clock = self._performer.perform, self._performer.judge, self._clock
        try:
            turn_began_at = clock()
            while not slot.is_abandoned:
                job = await self._next() if self._jobs.empty() else self._jobs.get_nowait()
                verdict: Verdict = Released()
                if slot.begin(job, clock()) and not self._is_ending:
                    CURRENT_HANDLER.set(job)
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
                        CURRENT_HANDLER.set(None)
                slot.job = None
                now = clock()
                if not job.is_decided:
                    job.seconds = now - slot.started_at
                    self._inbox.put(HandlerEnded(job, verdict))
                if slot.task is not None and slot.task.cancelling():
                    return
                if now - turn_began_at > TURN_SECONDS:
                    await asyncio.sleep(0)
                    turn_began_at = clock()
        finally:
            self._slots.discard(slot)
            if not slot.is_abandoned:
                self.open()  # the handler's message was cancelled, or it cancelled its own task, which ends

    async def _next(self) -> Job:
        # The next job of a group may follow from the end of the last.
        self._inbox.flush()
        return await self._jobs.get() if self._jobs.empty() else self._jobs.get_nowait()


class ThreadSlots:
    """Slots for plain functions, a daemon thread each, so that one that never returns keeps no process alive."""

    def __init__(self, performer: Performer, inbox: Inbox, clock: Callable[[], float] = monotonic) -> None:
        self._performer = performer
        self._inbox = inbox
        self._clock = clock
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._slots: set[Slot] = set()
        self._is_ending = False

    def add(self, job: Job) -> None:
        """Queue a job for the next free slot."""
        self._jobs.put(job)

    def take_back(self) -> list[Job]:
        """Remove and return the jobs that no slot has begun."""
        taken: list[Job | None] = []
        with contextlib.suppress(Empty):
            while True:
                taken.append(self._jobs.get_nowait())
        jobs = [job for job in taken if job is not None]
        # The ends of idle threads, which `stop` has put.
        for _ in range(len(taken) - len(jobs)):
            self._jobs.put(None)
        return jobs

    def running(self) -> Iterator[tuple[Slot, Job, float]]:
        """Yield the running jobs, and since when they run."""
        return running(self._slots)

    def begin_no_more(self) -> None:
        """Begin no further job; from any thread."""
        self._is_ending = True

    def cancel(self, slot: Slot) -> None:
        """Do nothing: a thread asks whether it is to end."""

    def abandon(self, slot: Slot, *, replace: bool) -> int:
        """Abandon a thread whose job is decided; return the number of threads that have not ended."""
        slot.is_abandoned = True
        if replace:
            self.open()
        # An atomic copy: a thread that ends removes its slot meanwhile.
        return sum(slot.is_abandoned for slot in tuple(self._slots))

    async def stop(self) -> None:
        """End the idle threads."""
        for _ in tuple(self._slots):
            self._jobs.put(None)

    def open(self) -> None:
        """Create a slot."""
        slot = Slot()
        self._slots.add(slot)
        threading.Thread(target=self._run, args=(slot,), name="spanmq slot", daemon=True).start()

    def _run(self, slot: Slot) -> None:
        call, judge, clock = self._performer.call, self._performer.judge, self._clock
        slot.thread = threading.get_ident()
        while not slot.is_abandoned and (job := self._jobs.get()) is not None:
            verdict: Verdict = Released()
            if slot.begin(job, clock()) and not self._is_ending:
                CURRENT_HANDLER.set(job)
                try:
                    verdict = call(job)
                except BaseException as error:  # noqa: BLE001, SystemExit too is only this handler's
                    verdict = judge(error, job)
                job.is_over = True
            if not job.is_decided:
                job.seconds = clock() - slot.started_at
            slot.job = None
            self._inbox.put_from_thread(HandlerEnded(job, verdict))
        self._slots.discard(slot)
