"""Sends verdicts to the database, in one call for each lease."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

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
from spanmq.model import Leased, Settled
from spanmq.worker.effect import Settle
from spanmq.worker.event import ROUTINE_OUTCOMES, CallFailed, EventBus, MessageSettled, SettlingStarted
from spanmq.worker.failure import HandlerFailure
from spanmq.worker.handler import Handler
from spanmq.worker.inbox import Inbox
from spanmq.worker.incoming import SettlementEnded
from spanmq.worker.job import Job, Lease, Released, Stored
from spanmq.worker.running.performing import Performer
from spanmq.worker.session import Session, backoff


class Settler:
    """Settles jobs; each verdict reaches the database, unless the worker ends while it is unreachable."""

    def __init__(
        self,
        session: Session,
        *,
        worker: str,
        handler: Handler,
        performer: Performer,
        bus: EventBus,
        inbox: Inbox,
    ) -> None:
        self._session = session
        self._worker = worker
        self._handler = handler
        self._performer = performer
        self._bus = bus
        self._inbox = inbox

    async def settle(self, asked: Settle) -> None:
        """Settle jobs of a lease, and put the end of that."""
        verdicts = await self._settle(asked.lease, asked.verdict, asked.jobs)
        is_returned = any(isinstance(verdict, HandlerFailure | Released) for verdict in verdicts)
        count = sum(len(job.messages) for job in asked.jobs)
        self._inbox.put(SettlementEnded(asked.server, asked.lease, count, is_returned))

    async def _settle(
        self, lease: Lease, verdict: HandlerFailure | Released | Stored | None, jobs: list[Job]
    ) -> list[HandlerFailure | Released | Stored | None]:
        """Settle jobs; return the verdicts by which that was done."""
        ids = [message.message_id for job in jobs for message in job.messages]
        self._bus.emit(SettlingStarted(lease.queue, lease.lease_id, len(ids)))
        # An earlier call may have taken effect.
        is_doubtful = False
        leased = Leased(lease.queue, lease.lease_id, ids)
        call = settlement(leased, verdict, self._worker, [job.result for job in jobs])
        attempt = 1
        while True:
            pause = backoff(attempt)
            try:
                settled = await self._session.run(call)
                break
            except (ConnectionLostError, ConnectionFailedError) as error:
                is_doubtful = is_doubtful or isinstance(error, ConnectionLostError)
            except SpanmqError as error:
                is_temporary = isinstance(error, TEMPORARY)
                if isinstance(verdict, Stored) and not is_temporary:
                    return await self._settle_each(lease, verdict, jobs, error)
                # Otherwise the queue was dropped, or a right is missing: a retry would fail, too.
                self._bus.emit(
                    CallFailed(lease.queue, " ".join(str(error).split()), pause if is_temporary else None)
                )
                if not is_temporary:
                    settled = [Settled(message_id, "stale") for message_id in ids]
                    break
            attempt += 1
            await asyncio.sleep(pause)
        failure = verdict if isinstance(verdict, HandlerFailure) else None
        self._tell(lease, settled, jobs, failure, is_doubtful=is_doubtful)
        return [verdict]

    async def _settle_each(
        self, lease: Lease, verdict: Stored, jobs: list[Job], error: SpanmqError
    ) -> list[HandlerFailure | Released | Stored | None]:
        """Settle jobs one by one, of which one has a result that the server refuses: the reason is stored in its place.

        For another error, or if that is refused too, the job has failed.
        """
        verdicts: list[HandlerFailure | Released | Stored | None] = []
        for job in jobs:
            judged: Any = verdict
            if len(jobs) == 1 and isinstance(error, InvalidArgumentError) and not job.is_unstored:
                job.is_unstored = True
                job.result = self._session.codec.of(lease.queue).encode_result(Unstored(error.message))
            elif len(jobs) == 1:
                judged = self._performer.judge(error, job)
            verdicts += await self._settle(lease, cast("HandlerFailure | Released | Stored", judged), [job])
        return verdicts

    def _tell(
        self,
        lease: Lease,
        settled: list[Settled],
        jobs: list[Job],
        failure: HandlerFailure | None,
        *,
        is_doubtful: bool,
    ) -> None:
        if not self._bus.hears_routine():
            settled = [result for result in settled if result.outcome not in ROUTINE_OUTCOMES]
        if settled:
            messages = {message.message_id: (message, job) for job in jobs for message in job.messages}
            for result in settled:
                message, job = messages[result.message_id]
                outcome = result.outcome
                if outcome == "stale" and (job.is_behind or is_doubtful or job.is_doubtful):
                    outcome = "released" if job.is_behind else "unknown"
                elif outcome == "stale" and job.is_cancelled and not (job.is_taken or lease.is_lost):
                    outcome = "cancelled"
                self._bus.emit(
                    MessageSettled(
                        message.queue,
                        message.message_id,
                        outcome,
                        message.attempt,
                        job.seconds,
                        self._handler.task_of(message),
                        *(
                            (failure.category, failure.error_class, failure.error, failure.traceback)
                            if failure
                            else ()
                        ),
                    )
                )


def settlement(
    leased: Leased,
    verdict: HandlerFailure | Released | Stored | None,
    worker: str | None = None,
    results: Sequence[str] = (),
) -> Callable[[AsyncClient], Awaitable[list[Settled]]]:
    """Return the call that settles messages by a verdict; `results` are those to store, if it is Stored."""
    if verdict is None:
        return lambda client: client.ack(leased)
    if isinstance(verdict, Released):
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
            if ids := [result.message_id for result in settled if result.outcome == "released"]:
                await transaction.set_vt(leased.queue, ids, delay)
        return settled

    return release
