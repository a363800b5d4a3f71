"""Routes of dead letters: list, redrive and delete them."""

from typing import Annotated, Any

from msgspec import UNSET, Meta
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.client.calls import UNCHANGED
from spanmq.model import DeadLetter, Redriven
from spanmq_service.backend import Backend
from spanmq_service.http.json_text import reply
from spanmq_service.routes.doors import add_doors
from spanmq_service.routes.parts import (
    Body,
    Bytes,
    Id,
    Limit,
    MayLook,
    MayManage,
    Moment,
    QueueName,
    Removed,
    RequestModel,
    Seconds,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("dead letters")

Rate = Annotated[float, Meta(gt=0, le=1e9)]


class Filters(RequestModel, kw_only=True):
    """Selects dead letters; a filter that is missing matches any.

    `error` is a regular expression, `where` a JSON path that the body meets.
    """

    category: Annotated[str, Meta(max_length=20)] | None = None
    error: Annotated[str, Meta(max_length=500)] | None = None
    error_class: Annotated[str, Meta(max_length=500)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    payload: dict[str, Any] | None = None
    where: Annotated[str, Meta(max_length=2_000)] | None = None
    dead_letter_ids: Annotated[list[Id], Meta(max_length=10_000)] | None = None


class Sought(Filters):
    """Selects dead letters, and the page of them: those after an id."""

    redriven: bool | None = False
    after: Id = 0
    limit: Limit = 100
    body_bytes_max: Bytes | None = None
    newest_first: bool = False


class Redrive(Filters):
    """Selects the dead letters to redrive, how their bodies change, and how fast they become visible.

    Without a `delay` the first becomes visible after the `redrive_delay` of the queue's policy. `patch` is a JSON
    Patch (RFC 6902, without `copy`): it is for all that match or none, at most `limit`. With `dry_run` the first
    ten have their bodies `before` and `after` it.
    """

    patch: Annotated[list[dict[str, Any]], Meta(min_length=1, max_length=100)] | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    rate: Rate | None = None
    delay: Seconds | None = None
    dry_run: bool = False


class Discard(Filters):
    """Selects the dead letters to delete."""

    redriven: bool | None = False
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    dry_run: bool = False


class Repaired(RequestModel, kw_only=True):
    """Seconds until the message is visible (default: the policy's `redrive_delay`), and its new body or headers."""

    body: Body = UNSET
    headers: dict[str, Any] | None = None
    delay: Seconds | None = None


DeadLetters = answer("DeadLetters", dead_letters=list[DeadLetter])


@routes.post("/queues/{queue}/dead-letters/search", answer=DeadLetters)
async def dead_letters(
    queue: QueueName, backend: Backend, caller: MayLook, sought: Sought | None = None
) -> Response:
    """List dead letters, in the order in which they were added; the next page begins after the last id."""
    filters = asdict(sought or Sought())
    async with backend.costly_searches.searching(caller, filters) as client:
        letters = await client.dead_letters.list(queue, **filters)
    return reply(dead_letters=letters)


@routes.post(
    "/queues/{queue}/dead-letters/redrive",
    answer=answer("RedrivenMessages", results=list[Redriven]),
    errors=(409,),
)
async def redrive(
    queue: QueueName, backend: Backend, caller: MayManage, which: Redrive | None = None
) -> Response:
    """Redrive dead letters to their queue, each at most once; with a patch all that match or none.

    A dry run with a patch, and any filter but `since`, `until` and `dead_letter_ids`, also requires `look`.
    """
    which = which or Redrive()
    settings = asdict(which)
    caller.check_choice(queue, settings, is_shown=which.patch is not None and which.dry_run)
    return reply(results=await backend.costly_searches.redrive(caller, queue, **settings))


@routes.post(
    "/queues/{queue}/dead-letters/{message_id}/redrive",
    answer=answer("RedrivenMessage", message_id=int),
    errors=(409,),
)
async def redrive_message(
    queue: QueueName,
    message_id: Id,
    backend: Backend,
    _: MayManage,
    repaired: Repaired | None = None,
) -> Response:
    """Redrive one dead letter, repaired if a body or headers are given."""
    repaired = repaired or Repaired()
    # A body that is null differs from a missing body.
    body = UNCHANGED if repaired.body is UNSET else repaired.body
    return reply(
        message_id=await backend.client.dead_letters.edit(
            queue, message_id, body=body, headers=repaired.headers, delay=repaired.delay
        )
    )


@routes.post("/queues/{queue}/dead-letters/purge", answer=Removed)
async def purge_dead_letters(
    queue: QueueName, backend: Backend, caller: MayManage, which: Discard | None = None
) -> Response:
    """Delete dead letters; with `dry_run` only count them.

    Any filter but `since`, `until` and `dead_letter_ids` also requires `look`.
    """
    settings = asdict(which or Discard())
    caller.check_choice(queue, settings)
    return reply(removed=await backend.costly_searches.discard(caller, queue, **settings))


add_doors(routes, "dead-letter")
