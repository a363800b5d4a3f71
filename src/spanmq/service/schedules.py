"""Routes of recurring messages. The rights on a schedule are those on its queue."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from spanmq.client import AsyncClient
from spanmq.errors import NotFoundError
from spanmq.model import Schedule
from spanmq.service.access import Guarded, Scope
from spanmq.service.caller import VERBS, Caller
from spanmq.service.failure import described
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, Existed, Given, Name, Named, SeesSome, Text, answer
from spanmq.service.refusal import Refusal

routes = APIRouter(prefix="/v1", tags=["schedules"], route_class=Guarded)

ManagesSome = Annotated[Caller, Depends(Scope("manage", "request"))]


class Recurring(Given):
    """When a message is sent, its queue and its content."""

    queue: Annotated[str, Field(min_length=1, max_length=47)]
    cron: Annotated[str, Field(max_length=1_000)]
    body: Any
    time_zone: Annotated[str, Field(max_length=100)] = "UTC"
    headers: dict[str, Any] | None = None
    group: Text | None = None
    catch_up: bool = False


SchedulePaused = answer("SchedulePaused", name=str, is_paused=bool)


@routes.get("/schedules", response_model=answer("Schedules", schedules=list[Schedule]))
async def list_schedules(backend: Behind, caller: SeesSome) -> Response:
    """List the recurring messages of queues that the token may look at."""
    found = await backend.client.schedules.list()
    return reply(schedules=[each for each in found if caller.may("look", each.queue)])


@routes.put("/schedules/{name}", response_model=Named, responses=described(404, 409))
async def schedule(name: Name, recurring: Recurring, backend: Behind, caller: ManagesSome) -> Response:
    """Create a recurring message, or change the one with this name."""
    caller.check("manage", recurring.queue)
    async with backend.client.transaction() as client:
        # A caller without rights on the existing schedule's queue may not replace it.
        queue = await _queue_of(client, name)
        if queue is not None and not caller.may("manage", queue):
            # Names are shared by all queues: the error reveals that this one is taken, but not by which
            # queue.
            raise Refusal(403, "forbidden", f"this token may not change schedule {name!r}")
        await client.schedules.create(name, **recurring.model_dump())
    return reply(name=name)


@routes.delete("/schedules/{name}", response_model=Existed)
async def unschedule(name: Name, backend: Behind, caller: ManagesSome) -> Response:
    """Remove a schedule; messages that it has sent stay."""
    async with backend.client.transaction() as client:
        exists = await _may_change(client, caller, name)
        return reply(existed=exists and await client.schedules.delete(name))


@routes.post("/schedules/{name}/pause", response_model=SchedulePaused, responses=described(404))
async def pause_schedule(name: Name, backend: Behind, caller: ManagesSome) -> Response:
    """Pause a schedule; messages due meanwhile are not sent."""
    async with backend.client.transaction() as client:
        await _check(client, caller, name)
        await client.schedules.pause(name)
    return reply(name=name, is_paused=True)


@routes.post("/schedules/{name}/resume", response_model=SchedulePaused, responses=described(404))
async def resume_schedule(name: Name, backend: Behind, caller: ManagesSome) -> Response:
    """Resume a schedule."""
    async with backend.client.transaction() as client:
        await _check(client, caller, name)
        await client.schedules.resume(name)
    return reply(name=name, is_paused=False)


async def _queue_of(client: AsyncClient, name: str) -> str | None:
    return next((each.queue for each in await client.schedules.list() if each.name == name), None)


async def _may_change(client: AsyncClient, caller: Caller, name: str) -> bool:
    """Return whether a schedule exists for the caller; raises 403 if the caller may only look at its queue.

    A schedule of a queue that the token does not match does not exist for the caller.
    """
    queue = await _queue_of(client, name)
    if queue is None or not any(caller.may(verb, queue) for verb in VERBS):
        return False
    caller.check("manage", queue)
    return True


async def _check(client: AsyncClient, caller: Caller, name: str) -> None:
    if not await _may_change(client, caller, name):
        raise NotFoundError(f"schedule {name!r} does not exist", code="schedule_not_found")
