"""Routes of queues themselves: making, measuring, pausing, emptying, and how they deliver."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query
from pydantic import Field
from starlette.responses import Response

from spanmq.service.access import Caller, Guarded, Scope
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, Given, MayLook, MayLookAtAll, MayManage, MayManageAll, QueueName

routes = APIRouter(prefix="/v1", tags=["queues"], route_class=Guarded)

SeesSome = Annotated[Caller, Depends(Scope("look", "filtered"))]
Interval = Annotated[str, Field(max_length=100)] | Annotated[int, Field(ge=1, lt=2**63)]


class NewQueue(Given):
    """What kind of queue; the intervals make it PGMQ's partitioned one."""

    unlogged: bool = False
    partition_interval: Interval | None = None
    retention_interval: Interval | None = None


@routes.get("/queues")
async def list_queues(backend: Behind, caller: SeesSome) -> Response:
    """List the queues that the token may look at."""
    found = await backend.client.list_queues()
    return reply(queues=[queue for queue in found if caller.may("look", queue.name)])


@routes.put("/queues/{queue}")
async def create_queue(
    queue: QueueName, backend: Behind, _: MayManage, new: NewQueue | None = None
) -> Response:
    """Create a queue; does nothing if it exists."""
    await backend.client.create_queue(queue, **(new or NewQueue()).model_dump())
    return reply(queue=queue)


@routes.delete("/queues/{queue}")
async def drop_queue(queue: QueueName, backend: Behind, _: MayManage) -> Response:
    """Drop a queue with its messages and its archive."""
    return reply(existed=await backend.client.drop_queue(queue))


@routes.post("/queues/{queue}/purge")
async def purge(queue: QueueName, backend: Behind, _: MayManage) -> Response:
    """Remove all messages of a queue."""
    return reply(removed=await backend.client.purge(queue))


@routes.post("/queues/{queue}/pause")
async def pause(queue: QueueName, backend: Behind, _: MayManage) -> Response:
    """Let receivers get nothing; senders go on."""
    await backend.client.pause(queue)
    return reply(queue=queue, is_paused=True)


@routes.post("/queues/{queue}/resume")
async def resume(queue: QueueName, backend: Behind, _: MayManage) -> Response:
    """Let receivers get messages again."""
    await backend.client.resume(queue)
    return reply(queue=queue, is_paused=False)


@routes.get("/queues/{queue}/policy")
async def get_policy(queue: QueueName, backend: Behind, _: MayLook) -> Response:
    """Give the settings of a queue's policy."""
    return reply(policy=await backend.client.get_policy(queue))


@routes.patch("/queues/{queue}/policy")
async def set_policy(
    queue: QueueName,
    settings: Annotated[dict[str, Any], Body(examples=[{"max_attempts": 5}])],
    backend: Behind,
    _: MayManage,
) -> Response:
    """Change the settings that are named; null gives one its default back."""
    return reply(policy=await backend.client.set_policy(queue, settings))


@routes.get("/queues/{queue}/metrics")
async def metrics(queue: QueueName, backend: Behind, _: MayLook) -> Response:
    """Count one queue."""
    return reply(metrics=await backend.client.metrics(queue))


@routes.get("/metrics")
async def metrics_all(backend: Behind, caller: SeesSome) -> Response:
    """Count every queue that the token may look at."""
    found = await backend.client.metrics_all()
    return reply(metrics=[each for each in found if caller.may("look", each.queue)])


@routes.get("/queues/{queue}/storage")
async def storage(queue: QueueName, backend: Behind, _: MayLook) -> Response:
    """Measure what a queue takes on disk."""
    return reply(storage=await backend.client.storage(queue))


@routes.get("/queues/{queue}/statistics")
async def statistics(
    queue: QueueName,
    backend: Behind,
    _: MayLook,
    seconds: Annotated[float, Query(gt=0, le=3e9, allow_inf_nan=False)] = 3600.0,
) -> Response:
    """Give what a queue did within the last so many seconds, a sample a minute."""
    return reply(samples=await backend.client.statistics(queue, seconds=seconds))


@routes.get("/health")
async def health(backend: Behind, caller: SeesSome) -> Response:
    """Tell how each queue is that the token may look at."""
    return reply(queues=[each for each in await backend.client.health() if caller.may("look", each.queue)])


@routes.get("/doctor")
async def doctor(
    backend: Behind, _: MayLookAtAll, connections: Annotated[int | None, Query(ge=1, lt=2**31)] = None
) -> Response:
    """Look whether the database is fit for its job."""
    return reply(findings=await backend.client.doctor(connections=connections))


@routes.get("/version")
async def version(backend: Behind, _: SeesSome) -> Response:
    """Give the version of the schema."""
    return reply(version=await backend.client.version())


@routes.post("/maintain")
async def maintain(
    backend: Behind, _: MayManageAll, budget: Annotated[int, Query(ge=1, le=1_000)] = 10
) -> Response:
    """Do one bounded step of housekeeping; the service does so by itself, too."""
    return reply(steps=await backend.client.maintain(budget))
