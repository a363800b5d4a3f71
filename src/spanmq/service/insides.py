"""Routes that inspect queues at a bounded cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from spanmq.model import Group, HeldLease, QueueCount, Segment, StatisticsStep
from spanmq.service.access import Guarded
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, Limit, MayLook, QueueName, SeesSome, answer

routes = APIRouter(prefix="/v1", tags=["queues"], route_class=Guarded)

Lookback = Annotated[float, Query(gt=0, le=3e9, allow_inf_nan=False)]
Step = Annotated[float, Query(ge=1, le=3e9, allow_inf_nan=False)]


@routes.get("/glance", response_model=answer("QueueCounts", queues=list[QueueCount]))
async def glance(
    backend: Behind, caller: SeesSome, most: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> Response:
    """Count the messages that wait in each queue that the token may look at, up to `most` in each."""
    found = await backend.client.inspect.count(most=most)
    return reply(queues=[each for each in found if caller.may("look", each.queue)])


@routes.get("/statistics", response_model=answer("StatisticsSums", steps=list[StatisticsStep]))
async def sum_statistics(
    backend: Behind, caller: SeesSome, seconds: Lookback = 3600.0, step: Step = 60.0
) -> Response:
    """Return the sums of the statistics of all queues that the token may look at, in steps."""
    queues = [each.name for each in await backend.client.queues.list() if caller.may("look", each.name)]
    return reply(steps=await backend.client.health.total(queues, seconds=seconds, step=step))


@routes.get("/queues/{queue}/leases", response_model=answer("Leases", leases=list[HeldLease]))
async def list_leases(queue: QueueName, backend: Behind, _: MayLook, limit: Limit = 100) -> Response:
    """List what receivers hold, the oldest lease first."""
    return reply(leases=await backend.client.inspect.leases(queue, limit))


@routes.get("/queues/{queue}/groups", response_model=answer("Groups", groups=list[Group]))
async def list_groups(queue: QueueName, backend: Behind, _: MayLook, limit: Limit = 100) -> Response:
    """List groups, those first that give nothing now, and what they wait for."""
    return reply(groups=await backend.client.inspect.groups(queue, limit))


@routes.get("/queues/{queue}/segments", response_model=answer("Segments", segments=list[Segment]))
async def list_segments(queue: QueueName, backend: Behind, _: MayLook, limit: Limit = 100) -> Response:
    """List the tables of a queue's log, the newest first."""
    return reply(segments=await backend.client.inspect.segments(queue, limit))
