"""Routes that receive messages, and those that settle them."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.errors import AnswerTooLargeError
from spanmq.model import Leased, Message, Settled
from spanmq_service import receipt
from spanmq_service.backend import Backend
from spanmq_service.guard.access import Scope, hung_up, still_may
from spanmq_service.guard.caller import Caller
from spanmq_service.http.failure import invalid
from spanmq_service.http.json_text import JsonText, message_text, messages_text
from spanmq_service.receipt import Receipt
from spanmq_service.routes.parts import (
    MayReceive,
    QueueName,
    ReceivedMessages,
    RequestModel,
    Seconds,
    Text,
)
from spanmq_service.routes.table import Table
from spanmq_service.waiting import in_own_trace

routes = Table("messages")

logger = logging.getLogger("spanmq.service")
T = TypeVar("T")

BATCH_MAX = 1_000
ReceiptText = Annotated[str, Meta(max_length=200)]
MaySettle = Annotated[Caller, Scope("receive", "request")]


class Wanted(RequestModel, kw_only=True):
    """The number of messages, the duration of their lease, and how long to wait for the first."""

    quantity: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    lease: Seconds | None = None
    slots: Annotated[int, Meta(ge=1, le=BATCH_MAX)] = 1
    wait: Seconds = 0.0


class Held(RequestModel, kw_only=True):
    """The receipts of messages."""

    receipts: Annotated[list[ReceiptText], Meta(min_length=1, max_length=BATCH_MAX)]


class GivenUp(Held):
    """Receipts and the reason."""

    error: Text | None = None
    category: Annotated[str, Meta(max_length=20)] | None = None
    error_class: Text | None = None
    traceback: Annotated[str, Meta(max_length=100_000)] | None = None
    worker: Text | None = None

    @property
    def reason(self) -> dict[str, Any]:
        """Return the reason as the client's arguments."""
        return {
            "error": self.error,
            "category": self.category,
            "error_class": self.error_class,
            "traceback": self.traceback,
            "worker": self.worker,
        }


class GivenBack(GivenUp):
    """Receipts, the reason, and whether to retry: with `requeue` false they become dead letters at once."""

    retry_in: Seconds | None = None
    requeue: bool = True


class Timed(Held):
    """Receipts, and a time in seconds from now on."""

    seconds: Seconds


class Extended(Timed):
    """Receipts, and how long to hold their messages from now on; `shorten`: also where they are held longer."""

    shorten: bool = False


class Outcome(Struct):
    """The outcome for one message."""

    receipt: str
    outcome: str


class Outcomes(Struct):
    """An outcome for each receipt, in the same order."""

    results: list[Outcome]


@routes.post("/queues/{queue}/receive", answer=ReceivedMessages)
async def receive(
    queue: QueueName,
    request: Request,
    backend: Backend,
    caller: MayReceive,
    options: Wanted | None = None,
) -> Response:
    """Receive messages under a lease, waiting up to `wait` seconds for the first (ReceiveMessage)."""
    options = options or Wanted()

    async def take() -> list[Message]:
        return await fitting(
            partial(backend.client.receive, queue, lease=options.lease, slots=options.slots), options.quantity
        )

    if options.wait > backend.settings.wait_max:
        raise invalid(f"wait may be {backend.settings.wait_max:g} seconds at most, got {options.wait:g}")
    messages: list[Message] = await take()
    if not messages and options.wait:
        with backend.gate.as_waiting(request.scope, caller):
            messages = await backend.waiting.wait(
                queue,
                in_own_trace(take),
                options.wait,
                hung_up(request),
                permit=still_may(request, "receive", queue),
            )
    with backend.waiting.claimed(messages):
        await backend.gate.acquire(request.scope, caller)
        return messages_text(await written(backend, messages, message_text))


@routes.post("/ack", answer=Outcomes, errors=(404,))
async def ack(held: Held, backend: Backend, caller: MaySettle) -> Response:
    """Settle messages as done (AckMessage)."""
    return await _settle(backend.client, caller, held.receipts, lambda client: client.ack)


@routes.post("/nack", answer=Outcomes, errors=(404,))
async def nack(held: GivenBack, backend: Backend, caller: MaySettle) -> Response:
    """Fail messages: each is retried after its backoff, or becomes a dead letter (NackMessage)."""
    if not held.requeue:
        if held.retry_in is not None:
            raise invalid("retry_in needs requeue to be true")
        return await _reject(held, backend.client, caller)
    return await _settle(
        backend.client,
        caller,
        held.receipts,
        lambda client: partial(client.nack, retry_in=held.retry_in, **held.reason),
    )


@routes.post("/reject", answer=Outcomes, errors=(404,))
async def reject(held: GivenUp, backend: Backend, caller: MaySettle) -> Response:
    """Reject messages: each becomes a dead letter at once."""
    return await _reject(held, backend.client, caller)


@routes.post("/release", answer=Outcomes, errors=(404,))
async def release(held: Held, backend: Backend, caller: MaySettle) -> Response:
    """Release messages: they become visible at once, and this delivery does not count as an attempt."""
    return await _settle(backend.client, caller, held.receipts, lambda client: client.release)


@routes.post("/extend", answer=Outcomes, errors=(404,))
async def extend(held: Extended, backend: Backend, caller: MaySettle) -> Response:
    """Hold each of these messages for at least `seconds` from now on; with `shorten` for this time exactly."""
    return await _settle(
        backend.client,
        caller,
        held.receipts,
        lambda client: partial(client.extend, seconds=held.seconds, shorten=held.shorten),
    )


@routes.post("/close-bucket", answer=Outcomes, errors=(404,))
async def close_bucket(held: Timed, backend: Backend, caller: MaySettle) -> Response:
    """Let nobody receive for `seconds` from the rate buckets of these messages, which stay in their leases."""
    return await _settle(
        backend.client,
        caller,
        held.receipts,
        lambda client: partial(client.close_bucket, seconds=held.seconds),
    )


async def _reject(held: GivenUp, client: AsyncClient, caller: Caller) -> Response:
    return await _settle(client, caller, held.receipts, lambda client: partial(client.reject, **held.reason))


Settle = Callable[[Leased], Awaitable[list[Settled]]]


async def _settle(
    client: AsyncClient, caller: Caller, receipts: list[str], how: Callable[[AsyncClient], Settle]
) -> Response:
    """Settle the messages of the receipts in one transaction."""
    parsed = _read(caller, receipts)
    leases: dict[tuple[str, int], list[int]] = {}
    for message in parsed:
        leases.setdefault((message.queue, message.lease_id), []).append(message.message_id)
    outcomes: dict[tuple[str, int, int], str] = {}

    async def settle(settle_lease: Settle) -> None:
        # In a fixed order, so that two requests that settle messages of the same leases cannot deadlock.
        for (queue, lease_id), message_ids in sorted(leases.items()):
            for settled in await settle_lease(Leased(queue, lease_id, message_ids)):
                outcomes[queue, lease_id, settled.message_id] = settled.outcome

    if len(leases) == 1:
        await settle(how(client))
    else:
        async with client.transaction() as joined:
            await settle(how(joined))
    results = [
        outcomes.get((message.queue, message.lease_id, message.message_id), "stale") for message in parsed
    ]
    return _outcomes(receipts, results)


def _outcomes(receipts: list[str], outcomes: list[str]) -> Response:
    # Written by hand: receipts contain no characters that JSON escapes, and outcomes are constants.
    pairs = zip(receipts, outcomes, strict=True)
    written = ",".join([f'{{"receipt":"{text}","outcome":"{outcome}"}}' for text, outcome in pairs])
    return JsonText(f'{{"results":[{written}]}}')


def _read(caller: Caller, receipts: list[str]) -> list[Receipt]:
    """Parse all receipts before any is settled, and check that the caller may settle them."""
    parsed = [receipt.read(text) for text in receipts]
    for queue in {message.queue for message in parsed}:
        caller.check("receive", queue)
    return parsed


async def fitting(take: Callable[[int], Awaitable[T]], quantity: int) -> T:
    """Return what `take` returns for as many messages as an answer may hold, at most this number."""
    while True:
        try:
            return await take(quantity)
        except AnswerTooLargeError as error:
            # Nothing was taken. The next ones may be others, of other sizes.
            quantity = min(error.fitting, quantity - 1)


async def written(backend: Backend, messages: list[Message], write: Callable[[Message], T]) -> list[T]:
    """Return the result of `write` for each message; reject a message that cannot be written, and no other."""
    results: list[T] = []
    for message in messages:
        try:
            results.append(write(message))
        except Exception as error:  # noqa: BLE001, headers are free-form; the other messages must be returned
            logger.warning(
                "message_unwritten queue=%s message=%s error=%r",
                message.queue,
                message.message_id,
                str(error),
            )
            reason = f"the message cannot be written: {error}"
            await backend.client.reject(message, reason, error_class=type(error).__name__)
    return results
