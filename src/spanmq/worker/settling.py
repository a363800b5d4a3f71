"""Gathers verdicts, and sends them to the database, in one call for each lease.

They are gathered while all slots are in use: the rest of the lease follows, and the processor time of a call is
better used by handlers. A lease that is complete is settled at once; all else within milliseconds when a slot is idle.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, cast

from spanmq import tracing
from spanmq.client import AsyncClient, functions
from spanmq.codec.body import Unstored
from spanmq.errors import (
    TEMPORARY,
    ConnectionFailedError,
    ConnectionLostError,
    InvalidArgumentError,
    SpanmqError,
)
from spanmq.model import Leased, Message, Settled
from spanmq.worker.event import ROUTINE_OUTCOMES, CallFailed, EventBus, MessageSettled, SettlingStarted
from spanmq.worker.failure import Failure
from spanmq.worker.job import Gone, Holding, Job, Release, Stored, Verdict
from spanmq.worker.session import Session, backoff

# The number of concurrent calls.
CALLS_MAX: Final = 3
# How long what must not wait is gathered: handlers that began together end together.
SOON_SECONDS: Final = 0.003
# The share of a lease's remaining time for which its verdicts may be gathered.
SHARE_OF_LEASE: Final = 0.05

Bundle = tuple[Holding, Failure | Release | Stored | None]


@dataclass(eq=False, kw_only=True)
class Settler:
    """Takes verdicts; each reaches the database, unless the worker ends while it is unreachable."""

    session: Session
    worker: str
    gather: float
    # The number of verdicts that are settled without waiting for more.
    batch: int
    bus: EventBus
    # Returns whether the slot of a handler that has ended is in use again.
    is_busy: Callable[[], bool]
    # Returns the verdict on a job whose result can't be stored.
    judge: Callable[[BaseException, Job], Verdict]
    on_settled: Callable[[Holding, Verdict], None]
    # The name of a message's task, for logs.
    task_of: Callable[[Message], str | None]

    def __post_init__(self) -> None:
        """Begin with nothing to settle."""
        self._pending: dict[Bundle, list[Job]] = {}
        # The number of messages that wait to be settled, or are being settled.
        self.backlog = 0
        # Of these, the number that no call has taken yet.
        self._gathered = 0
        # When they are to be settled, at the latest.
        self._due_at = math.inf
        self._wanted = asyncio.Event()
        # Set when they are due earlier than they were.
        self._hurried = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.settled = 0
        self.crash: Callable[[BaseException], None] = lambda _: None

    async def start(self) -> asyncio.Task[None]:
        """Begin to settle."""
        self._task = asyncio.create_task(self._run(), name="spanmq settling")
        return self._task

    async def stop(self, seconds: float) -> None:
        """Settle the gathered verdicts, within `seconds`."""
        self._is_stopping = True
        self._wanted.set()
        self._settle_by(-math.inf)
        tasks = [task for task in (self._task, *self._calls) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in (self._task, *self._calls):
            if task is not None:
                task.cancel()

    def settle(self, job: Job, verdict: Verdict) -> None:
        """Take a verdict; the job is decided by it."""
        job.is_decided = True
        holding = job.holding
        count = len(job.messages)
        holding.undecided -= count
        if isinstance(verdict, Gone):
            holding.unsettled -= count
            self.settled += count
            for message in job.messages:
                self._tell(message, verdict.outcome, job.seconds, None)
            self.on_settled(holding, verdict)
            return
        self._pending.setdefault((holding, verdict), []).append(job)
        self.backlog += count
        self._gathered += count
        self._wanted.set()
        if holding.undecided == 0 or self._gathered >= self.batch:
            self._settle_by(-math.inf)  # settling the whole lease at once is the cheapest
        else:
            now = monotonic()
            self._settle_by(now + self._patience(job, verdict, now))

    def _patience(self, job: Job, verdict: Failure | Release | Stored | None, now: float) -> float:
        """Return for how many seconds a verdict may wait for others."""
        # A sender may wait for a result, other workers for what is released, and a group for its message.
        is_needed = verdict is not None or job.group is not None
        if is_needed or not self.is_busy():
            return min(SOON_SECONDS, self.gather)
        return min(self.gather, (job.holding.ends_at - now) * SHARE_OF_LEASE)

    def _settle_by(self, due_at: float) -> None:
        if due_at < self._due_at:
            self._due_at = due_at
            self._hurried.set()

    async def _run(self) -> None:
        while not (self._is_stopping and not self._pending):
            await self._wanted.wait()
            while (left := self._due_at - monotonic()) > 0:
                self._hurried.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await self._hurried.wait()
            self._wanted.clear()
            self._due_at = math.inf
            self._gathered = 0
            taken, self._pending = self._pending, {}
            for bundle, jobs in taken.items():
                while len(self._calls) >= CALLS_MAX:
                    await asyncio.wait(self._calls, return_when=asyncio.FIRST_COMPLETED)
                call = asyncio.create_task(self._settle(*bundle, jobs), name="spanmq settlement")
                self._calls.add(call)
                call.add_done_callback(self._ended)
            if self._is_stopping:
                self._wanted.set()
        while self._calls:
            await asyncio.wait(self._calls)

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        # Errors other than the database's are bugs: the worker must stop.
        if not call.cancelled() and (error := call.exception()) is not None:
            self.crash(error)

    async def _settle(
        self, holding: Holding, verdict: Failure | Release | Stored | None, jobs: list[Job]
    ) -> None:
        ids = [message.message_id for job in jobs for message in job.messages]
        self.bus.emit(SettlingStarted(holding.queue, holding.lease_id, len(ids)))
        # An earlier call may have taken effect.
        is_doubtful = False
        leased = Leased(holding.queue, holding.lease_id, ids)
        call = settlement(leased, verdict, self.worker, [job.result for job in jobs])
        attempt = 1
        while True:
            pause = backoff(attempt)
            try:
                settled = await self.session.run(call)
                break
            except (ConnectionLostError, ConnectionFailedError) as error:
                is_doubtful = is_doubtful or isinstance(error, ConnectionLostError)
            except SpanmqError as error:
                is_temporary = isinstance(error, TEMPORARY)
                if isinstance(verdict, Stored) and not is_temporary:
                    await self._settle_each(holding, verdict, jobs, error)
                    return
                # Otherwise the queue was dropped, or a right is missing: a retry would fail, too.
                self.bus.emit(
                    CallFailed(holding.queue, " ".join(str(error).split()), pause if is_temporary else None)
                )
                if not is_temporary:
                    settled = [Settled(message_id, "stale") for message_id in ids]
                    break
            attempt += 1
            await asyncio.sleep(pause)
        self.backlog -= len(ids)
        holding.unsettled -= len(ids)
        self.settled += len(ids)
        failure = verdict if isinstance(verdict, Failure) else None
        self._tell_all(holding, settled, jobs, failure, is_doubtful=is_doubtful)
        self.on_settled(holding, verdict)

    async def _settle_each(
        self, holding: Holding, verdict: Stored, jobs: list[Job], error: SpanmqError
    ) -> None:
        """Settle jobs one by one, of which one has a result that the server refuses: the reason is stored in its place.

        For another error, or if that is refused too, the job has failed.
        """
        for job in jobs:
            judged: Any = verdict
            if len(jobs) == 1 and isinstance(error, InvalidArgumentError) and not job.is_unstored:
                job.is_unstored = True
                job.result = self.session.codec.of(holding.queue).encode_result(Unstored(error.message))
            elif len(jobs) == 1:
                judged = self.judge(error, job)
            await self._settle(holding, cast("Failure | Release | Stored", judged), [job])

    def _tell_all(
        self,
        holding: Holding,
        settled: list[Settled],
        jobs: list[Job],
        failure: Failure | None,
        *,
        is_doubtful: bool,
    ) -> None:
        if not self.bus.hears_routine():
            settled = [each for each in settled if each.outcome not in ROUTINE_OUTCOMES]
        if settled:
            messages = {message.message_id: (message, job) for job in jobs for message in job.messages}
            for each in settled:
                message, job = messages[each.message_id]
                outcome = each.outcome
                if outcome == "stale" and (job.is_behind or is_doubtful or job.is_doubtful):
                    outcome = "released" if job.is_behind else "unknown"
                elif outcome == "stale" and job.is_cancelled and not (job.is_taken or holding.is_lost):
                    outcome = "cancelled"
                self._tell(message, outcome, job.seconds, failure)

    def _tell(self, message: Message, outcome: str, seconds: float, failure: Failure | None) -> None:
        self.bus.emit(
            MessageSettled(
                message.queue,
                message.message_id,
                outcome,
                message.attempt,
                seconds,
                self.task_of(message),
                *(
                    (failure.category, failure.error_class, failure.error, failure.traceback)
                    if failure
                    else ()
                ),
            )
        )


def settlement(
    leased: Leased,
    verdict: Failure | Release | Stored | None,
    worker: str | None = None,
    results: Sequence[str] = (),
) -> Callable[[AsyncClient], Awaitable[list[Settled]]]:
    """Return the call that settles messages by a verdict; `results` are those to store, if it is Stored."""
    if verdict is None:
        return lambda client: client.ack(leased)
    if isinstance(verdict, Release):
        return defer(leased, verdict.delay) if verdict.delay else lambda client: client.release(leased)
    if isinstance(verdict, Stored):
        stored = functions.ack_with_results(leased, results, verdict.keep_for)

        async def store(client: AsyncClient) -> list[Settled]:
            return tracing.settled("ack", await client.admin.run(stored))

        return store
    why: dict[str, Any] = {
        "error": verdict.error,
        "category": verdict.category,
        "error_class": verdict.error_class,
        "traceback": verdict.traceback,
        "worker": worker,
    }
    if verdict.verb == "reject":
        return lambda client: client.reject(leased, **why)
    if verdict.closes_bucket and verdict.retry_in is not None:
        return close(leased, verdict.retry_in, why)
    return lambda client: client.nack(leased, retry_in=verdict.retry_in, **why)


def close(
    leased: Leased, seconds: float, why: Mapping[str, Any]
) -> Callable[[AsyncClient], Awaitable[list[Settled]]]:
    """Return the call that closes the bucket of messages for some seconds, after which they are tried again."""

    async def nack(client: AsyncClient) -> list[Settled]:
        async with client.transaction() as transaction:
            await transaction.close_bucket(leased, seconds)
            return await transaction.nack(leased, retry_in=seconds, **why)

    return nack


def defer(leased: Leased, delay: float) -> Callable[[AsyncClient], Awaitable[list[Settled]]]:
    """Return the call that releases messages, and hides them for `delay` seconds."""

    async def release(client: AsyncClient) -> list[Settled]:
        # In one transaction: set_vt asks for no lease, and nothing else receives them in between.
        async with client.transaction() as transaction:
            settled = await transaction.release(leased)
            if ids := [each.message_id for each in settled if each.outcome == "released"]:
                await transaction.set_vt(leased.queue, ids, delay)
        return settled

    return release
