"""Routes of messages by their ids: read, trace, remove."""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from spanmq.codec import Unopened
from spanmq.errors import InvalidBodyError
from spanmq.model import FailingCause, Settled, obstacle
from spanmq_service.backend import Backend
from spanmq_service.guard.caller import Caller
from spanmq_service.http.json_text import messages_of, reply
from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.parts import (
    Id,
    Limit,
    MayLook,
    MayManage,
    MayReceive,
    QueueName,
    ReceivedMessages,
    RequestModel,
    SeesSome,
    answer,
)
from spanmq_service.routes.receiving import fitting
from spanmq_service.routes.table import Table

routes = Table("messages")

MessageId = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Ids(RequestModel, kw_only=True):
    """The ids of messages."""

    message_ids: Annotated[list[Id], Meta(min_length=1, max_length=1_000)]


class Popped(RequestModel, kw_only=True):
    """How many messages."""

    quantity: Annotated[int, Meta(ge=1, le=1_000)] = 1


class FailingActed(RequestModel, kw_only=True):
    """Selects the failing messages to act on."""

    task: Annotated[str, Meta(max_length=500)] | None = None
    category: Annotated[str, Meta(max_length=20)] | None = None
    error_class: Annotated[str, Meta(max_length=500)] | None = None
    error: Annotated[str, Meta(max_length=10_000)] | None = None
    message_ids: Annotated[list[Id], Meta(min_length=1, max_length=1_000)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


FailingCauses = answer("FailingCauses", causes=list[FailingCause])
Results = answer("OutcomesById", results=list[Settled])


@routes.get(
    "/queues/{queue}/messages/{message_id}/state",
    answer=answer("MessageState", message_id=int, state=str, waits_for=str | None),
)
async def state(queue: QueueName, message_id: MessageId, backend: Backend, _: MayLook) -> Response:
    """Return the state of a message, such as pending, failed, dead or cancelled.

    A pending one `waits_for` the first reason that `explain` returns for it, if any.
    """
    current = await backend.client.inspect.state(queue, message_id)
    held = obstacle(await backend.client.inspect.explain(queue, message_id)) if current == "pending" else None
    return reply(message_id=message_id, state=current, waits_for=held.code if held else None)


@routes.get("/failing", answer=FailingCauses)
async def failing_everywhere(backend: Backend, caller: SeesSome, limit: Limit = 100) -> Response:
    """List the causes of failing messages, in all queues that the caller may look at."""
    return reply(causes=caller.seen(await backend.client.inspect.failing(limit=1_000))[:limit])


@routes.post("/queues/{queue}/failing/retry", answer=answer("Retried", retried=int))
async def retry_failing(
    queue: QueueName, backend: Backend, caller: MayManage, which: FailingActed | None = None
) -> Response:
    """Retry messages now that wait for a later attempt, until it returns 0. With a cause, also requires `look`."""
    filters = _acted_on(which, caller, queue)
    return reply(retried=await backend.client.queues.retry_failing(queue, **filters))


@routes.post("/queues/{queue}/failing/reject", answer=answer("Rejected", rejected=int))
async def reject_failing(
    queue: QueueName, backend: Backend, caller: MayManage, which: FailingActed | None = None
) -> Response:
    """Make dead letters of failing messages, until it returns 0. With a cause, also requires `look`."""
    filters = _acted_on(which, caller, queue)
    return reply(rejected=await backend.client.queues.reject_failing(queue, **filters))


def _acted_on(which: FailingActed | None, caller: Caller, queue: str) -> dict[str, Any]:
    filters = asdict(which or FailingActed())
    caller.check_choice(queue, filters)
    return filters


@routes.post("/queues/{queue}/pop", answer=ReceivedMessages)
async def pop(
    queue: QueueName,
    request: Request,
    backend: Backend,
    _: MayReceive,
    options: Popped | None = None,
) -> Response:
    """Remove messages and return them, at most once: those of an answer that does not arrive are lost."""
    return await fitting(partial(_pop, queue, request, backend), (options or Popped()).quantity)


async def _pop(queue: str, request: Request, backend: Backend, quantity: int) -> Response:
    async with backend.client.transaction() as client:
        messages = await client.pop(queue, quantity)
        # Checked before the transaction ends: messages that cannot be read or encoded, or whose client has
        # disconnected, stay in the queue.
        for message in messages:
            if isinstance(message.body, Unopened):
                raise message.body.error
        try:
            popped = messages_of(messages)
        except RecursionError as error:
            raise InvalidBodyError("a message is nested too deeply to be written", queue=queue) from error
        if await request.is_disconnected():
            raise HTTPException(400, "the client has hung up")
    return popped


@routes.post("/queues/{queue}/cancel", answer=Results)
async def cancel(queue: QueueName, ids: Ids, backend: Backend, _: MayManage) -> Response:
    """Cancel messages: those that no receiver holds are removed, the workers of others end their handlers."""
    return reply(results=await backend.client.cancel(queue, ids.message_ids))


@routes.post("/queues/{queue}/delete", answer=Results)
async def delete(queue: QueueName, ids: Ids, backend: Backend, _: MayManage) -> Response:
    """Delete messages, even those that a receiver holds."""
    return _by_id(ids, await backend.client.delete(queue, ids.message_ids), "deleted")


@routes.post("/queues/{queue}/archive", answer=Results)
async def archive(queue: QueueName, ids: Ids, backend: Backend, _: MayManage) -> Response:
    """Move messages to the archive, even those that a receiver holds."""
    return _by_id(ids, await backend.client.archive(queue, ids.message_ids), "archived")


def _by_id(ids: Ids, done: list[int], outcome: str) -> Response:
    existed = set(done)
    outcomes = [
        (message_id, outcome if message_id in existed else "unknown") for message_id in ids.message_ids
    ]
    return reply(results=[{"message_id": message_id, "outcome": became} for message_id, became in outcomes])


add_doors(routes, "message", "why")
