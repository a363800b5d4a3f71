"""Routes of dead letters: list, redrive and delete them."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from spanmq.client.functions import UNCHANGED
from spanmq.model import DeadLetter, DeadLetterCount, Redriven
from spanmq.service.guard.access import Guarded
from spanmq.service.http.failure import described
from spanmq.service.http.json_text import reply
from spanmq.service.routes.parts import (
    BackendDependency,
    Body,
    BodyBytesMax,
    Given,
    MayLook,
    MayManage,
    Moment,
    QueueName,
    Removed,
    Seconds,
    SeesSome,
    answer,
)

routes = APIRouter(prefix="/v1", tags=["dead letters"], route_class=Guarded)

Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Filters(Given):
    """Selects dead letters; a filter that is missing matches any.

    `error` is a regular expression, `where` a JSON path that the body meets.
    """

    category: Annotated[str, Field(max_length=20)] | None = None
    error: Annotated[str, Field(max_length=500)] | None = None
    error_class: Annotated[str, Field(max_length=500)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    payload: dict[str, Any] | None = None
    where: Annotated[str, Field(max_length=2_000)] | None = None
    dead_letter_ids: (
        Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=10_000)] | None
    ) = None


class Sought(Filters):
    """Selects dead letters, and the page of them: those after an id."""

    redriven: bool | None = False
    after: Annotated[int, Field(ge=0, lt=2**63)] = 0
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    body_bytes_max: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    newest_first: bool = False


class Redrive(Filters):
    """Selects the dead letters to redrive, how their bodies change, and how fast they become visible.

    Without a `delay` the first becomes visible after the `redrive_delay` of the queue's policy. `patch` is a JSON
    Patch (RFC 6902, without `copy`): it is for all that match or none, at most `limit`. With `dry_run` the first
    ten have their bodies `before` and `after` it.
    """

    patch: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    rate: Rate | None = None
    delay: Seconds | None = None
    dry_run: bool = False


class Discard(Filters):
    """Selects the dead letters to delete."""

    redriven: bool | None = False
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    dry_run: bool = False


class Repaired(Given):
    """Seconds until the message is visible (default: the policy's `redrive_delay`), and its new body or headers."""

    body: Body = None
    headers: dict[str, Any] | None = None
    delay: Seconds | None = None


Counts = answer("DeadLetterCounts", counts=list[DeadLetterCount])
DeadLetters = answer("DeadLetters", dead_letters=list[DeadLetter])


@routes.get("/dead-letters", response_model=Counts)
async def count_all_dead_letters(backend: BackendDependency, caller: SeesSome) -> Response:
    """Count the dead letters, by queue and category."""
    return reply(counts=caller.seen(await backend.client.dead_letters.count()))


@routes.get("/queues/{queue}/dead-letters", response_model=Counts)
async def count_dead_letters(queue: QueueName, backend: BackendDependency, _: MayLook) -> Response:
    """Count the dead letters of a queue, by category."""
    return reply(counts=await backend.client.dead_letters.count(queue))


@routes.get("/queues/{queue}/messages/{message_id}/dead-letters", response_model=DeadLetters)
async def dead_letters_of(
    queue: QueueName,
    message_id: Annotated[int, Path(ge=0, lt=2**63)],
    backend: BackendDependency,
    _: MayLook,
    body_bytes_max: BodyBytesMax = None,
) -> Response:
    """Return the dead letters that a message became, the first one first."""
    found = await backend.client.dead_letters.show(queue, message_id, body_bytes_max=body_bytes_max)
    return reply(dead_letters=found)


@routes.post("/queues/{queue}/dead-letters/search", response_model=DeadLetters)
async def dead_letters(
    queue: QueueName, backend: BackendDependency, caller: MayLook, sought: Sought | None = None
) -> Response:
    """List dead letters, in the order in which they were added; the next page begins after the last id."""
    filters = (sought or Sought()).model_dump()
    async with backend.patterns.searching(caller, filters) as client:
        found = await client.dead_letters.list(queue, **filters)
    return reply(dead_letters=found)


@routes.post(
    "/queues/{queue}/dead-letters/redrive",
    response_model=answer("RedrivenMessages", results=list[Redriven]),
    responses=described(409),
)
async def redrive(
    queue: QueueName, backend: BackendDependency, caller: MayManage, which: Redrive | None = None
) -> Response:
    """Redrive dead letters to their queue, each at most once; with a patch all that match or none.

    A dry run with a patch, and any filter but `since`, `until` and `dead_letter_ids`, also requires `look`.
    """
    which = which or Redrive()
    settings = which.model_dump()
    caller.check_choice(queue, settings, is_shown=which.patch is not None and which.dry_run)
    return reply(results=await backend.patterns.redrive(caller, queue, **settings))


@routes.post(
    "/queues/{queue}/dead-letters/{message_id}/redrive",
    response_model=answer("RedrivenMessage", message_id=int),
    responses=described(409),
)
async def redrive_message(
    queue: QueueName,
    message_id: Annotated[int, Path(ge=0, lt=2**63)],
    backend: BackendDependency,
    _: MayManage,
    repaired: Repaired | None = None,
) -> Response:
    """Redrive one dead letter, repaired if a body or headers are given."""
    repaired = repaired or Repaired()
    # A body that is null differs from a missing body.
    body = repaired.body if "body" in repaired.model_fields_set else UNCHANGED
    return reply(
        message_id=await backend.client.dead_letters.edit(
            queue, message_id, body=body, headers=repaired.headers, delay=repaired.delay
        )
    )


@routes.post("/queues/{queue}/dead-letters/purge", response_model=Removed)
async def purge_dead_letters(
    queue: QueueName, backend: BackendDependency, caller: MayManage, which: Discard | None = None
) -> Response:
    """Delete dead letters; with `dry_run` only count them.

    Any filter but `since`, `until` and `dead_letter_ids` also requires `look`.
    """
    settings = (which or Discard()).model_dump()
    caller.check_choice(queue, settings)
    return reply(removed=await backend.patterns.discard(caller, queue, **settings))
