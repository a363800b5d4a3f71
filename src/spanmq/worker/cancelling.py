"""Ends handlers whose messages were cancelled, or left their lease otherwise."""

import asyncio
from collections.abc import Callable, Collection, Iterable

from spanmq.client.functions import cancelled
from spanmq.errors import SpanmqError
from spanmq.worker.event import CallFailed, EventBus
from spanmq.worker.job import Holding, Job
from spanmq.worker.limiter import ConcurrencyLimiter
from spanmq.worker.session import Session
from spanmq.worker.slots import TaskSlots, ThreadSlots, running


class Canceller:
    """Asks which messages are cancelled, when a notification says that some are and when a lease is extended.

    The handler of such a message is told: an async one is cancelled, a plain one asks. Its slot and its group are
    free when it has ended.
    """

    def __init__(
        self,
        slots: TaskSlots | ThreadSlots,
        limiters: Callable[[], Iterable[ConcurrencyLimiter]],
        session_of: Callable[[str], Session],
        bus: EventBus,
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._slots = slots
        self._limiters = limiters
        self._session_of = session_of
        self._bus = bus
        self._on_end = on_end
        self._searches: set[asyncio.Task[None]] = set()

    def search(self, queues: Collection[str]) -> None:
        """Begin to find the cancelled messages of queues."""
        for holding in {job.holding for job in self._jobs() if job.holding.queue in queues}:
            search = asyncio.create_task(self.find(holding), name=f"spanmq cancel {holding.queue}")
            self._searches.add(search)
            search.add_done_callback(self._searches.discard)
            search.add_done_callback(self._on_end)

    async def find(self, holding: Holding) -> None:
        """Cancel the handlers of those messages of a lease that were cancelled, or left it otherwise."""
        ids = [message.message_id for job in self._jobs(holding) for message in job.messages]
        if not ids:
            return
        call = cancelled(holding.queue, holding.lease_id, ids)
        try:
            gone = await self._session_of(holding.queue).run(lambda client: client.admin.run(call))
        except SpanmqError as error:
            # The next extension of the lease asks again.
            self._bus.emit(CallFailed(holding.queue, " ".join(str(error).split()), holding.seconds / 3))
            return
        for job in self._jobs(holding):
            # Not one whose transaction may have acked it.
            ids = [message.message_id for message in job.messages if message.message_id in gone]
            if ids and not job.is_doubtful:
                job.is_cancelled = True
                job.is_taken = any(gone[each] for each in ids)
                for slot, each, _ in running(self._slots.slots):
                    if each is job and slot.task is not None:
                        slot.task.cancel()

    def _jobs(self, holding: Holding | None = None) -> list[Job]:
        """Return the jobs that run or wait, and are not cancelled; of one lease, if it is given."""
        jobs = [job for _, job, _ in running(self._slots.slots)]
        waiting = self._slots.take_back()
        for job in waiting:
            self._slots.add(job)
        parked = [job for limiter in self._limiters() for job in limiter.waiting()]
        return [
            job
            for job in (*jobs, *waiting, *parked)
            if holding in (None, job.holding) and not (job.is_decided or job.is_cancelled)
        ]
