"""Routes of recurring messages. The rights on a schedule are those on its queue."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict
from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.errors import NotFoundError
from spanmq.model import Schedule
from spanmq_service.backend import Backend
from spanmq_service.guard.access import Scope
from spanmq_service.guard.caller import VERBS, Caller
from spanmq_service.http.failure import Refusal
from spanmq_service.http.json_text import reply
from spanmq_service.routes.parts import (
    Body,
    BodyBytesMax,
    Existed,
    Name,
    Named,
    RequestModel,
    SeesSome,
    Text,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("schedules")

# In a list: a body of a schedule may have 256 kB.
LISTED_BODY_BYTES_MAX = 10_000
ManagesSome = Annotated[Caller, Scope("manage", "request")]


class Recurring(RequestModel, kw_only=True):
    """The times, the queue and the content of a recurring message."""

    queue: Annotated[str, Meta(min_length=1, max_length=47)]
    cron: Annotated[str, Meta(max_length=1_000)]
    body: Body
    time_zone: Annotated[str, Meta(max_length=100)] = "UTC"
    headers: dict[str, Any] | None = None
    group: Text | None = None
    catch_up: bool = False


SchedulePaused = answer("SchedulePaused", name=str, is_paused=bool)


@routes.get("/schedules", answer=answer("Schedules", schedules=list[Schedule]))
async def list_schedules(
    backend: Backend, caller: SeesSome, body_bytes_max: BodyBytesMax = LISTED_BODY_BYTES_MAX
) -> Response:
    """List the recurring messages of queues that the token may look at."""
    queues = await backend.queues_of(caller)
    return reply(schedules=await backend.client.schedules.list(queues=queues, body_bytes_max=body_bytes_max))


@routes.put("/schedules/{name}", answer=Named, errors=(404, 409))
async def schedule(name: Name, recurring: Recurring, backend: Backend, caller: ManagesSome) -> Response:
    """Create a recurring message, or change the one with this name."""
    caller.check("manage", recurring.queue)
    async with changing(backend.client, caller, name, may_be_new=True) as client:
        await client.schedules.create(name, **asdict(recurring))
    return reply(name=name)


@routes.delete("/schedules/{name}", answer=Existed)
async def unschedule(name: Name, backend: Backend, caller: ManagesSome) -> Response:
    """Remove a schedule; messages that it has sent stay."""
    try:
        async with changing(backend.client, caller, name) as client:
            return reply(existed=await client.schedules.delete(name))
    except NotFoundError:
        return reply(existed=False)


@routes.post("/schedules/{name}/pause", answer=SchedulePaused, errors=(404,))
async def pause_schedule(name: Name, backend: Backend, caller: ManagesSome) -> Response:
    """Pause a schedule; messages due meanwhile are not sent."""
    async with changing(backend.client, caller, name) as client:
        await client.schedules.pause(name)
    return reply(name=name, is_paused=True)


@routes.post("/schedules/{name}/resume", answer=SchedulePaused, errors=(404,))
async def resume_schedule(name: Name, backend: Backend, caller: ManagesSome) -> Response:
    """Resume a schedule."""
    async with changing(backend.client, caller, name) as client:
        await client.schedules.resume(name)
    return reply(name=name, is_paused=False)


@asynccontextmanager
async def changing(
    pool: AsyncClient, caller: Caller, name: str, *, may_be_new: bool = False
) -> AsyncIterator[AsyncClient]:
    """Yield a transaction's client for a schedule that the caller may change; raises 403.

    A schedule of a queue that the token does not match does not exist for the caller: NotFoundError unless it
    `may_be_new`. But names are shared by all queues, so that the name of such a schedule is refused.
    """
    async with pool.transaction() as client:
        known = await client.schedules.list(names=[name], body_bytes_max=0)
        queue = known[0].queue if known else None
        if may_be_new and queue is not None and not caller.may("manage", queue):
            raise Refusal(403, "forbidden", f"this token may not change schedule {name!r}")
        if not may_be_new:
            if queue is None or not any(caller.may(verb, queue) for verb in VERBS):
                raise NotFoundError(f"schedule {name!r} does not exist", code="schedule_not_found")
            caller.check("manage", queue)
        yield client
