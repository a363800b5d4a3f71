"""Routes of the streams that consume queues, and of the jobs of the pipeline."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from spanmq import model as message
from spanmq.service.guard.access import Guarded
from spanmq.service.http.json_text import reply
from spanmq.service.routes.parts import (
    BackendDependency,
    Existed,
    Limit,
    MayLook,
    MayManage,
    QueueName,
    SeesSome,
    answer,
)

routes = APIRouter(prefix="/v1", tags=["streams"], route_class=Guarded)

Receiver = Annotated[str, Path(min_length=1, max_length=200, description="Its label or id.")]

Receivers = answer("Receivers", receivers=list[message.Receiver])


@routes.get("/receivers", response_model=Receivers)
async def list_all_receivers(backend: BackendDependency, caller: SeesSome) -> Response:
    """List the streams of queues that the token may look at."""
    return reply(receivers=caller.seen(await backend.client.admin.receivers.list()))


@routes.get("/queues/{queue}/receivers", response_model=Receivers)
async def list_receivers(queue: QueueName, backend: BackendDependency, _: MayLook) -> Response:
    """List the streams that consume a queue."""
    return reply(receivers=await backend.client.admin.receivers.list(queue))


@routes.post("/queues/{queue}/receivers/{receiver}/adopt", response_model=answer("Adopted", receiver=str))
async def adopt_receiver(
    queue: QueueName, receiver: Receiver, backend: BackendDependency, _: MayManage
) -> Response:
    """Allow the next new checkpoint with this label to replace the stream."""
    await backend.client.admin.receivers.adopt(queue, receiver)
    return reply(receiver=receiver)


@routes.post("/queues/{queue}/receivers/{receiver}/release", response_model=answer("Released", released=int))
async def release_receiver(
    queue: QueueName,
    receiver: Receiver,
    backend: BackendDependency,
    _: MayManage,
    settled: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
) -> Response:
    """Release the messages that a stream holds to the queue."""
    return reply(released=await backend.client.admin.receivers.release(queue, receiver, settled))


@routes.post("/queues/{queue}/forget-export", response_model=Existed)
async def forget_export(
    queue: QueueName, backend: BackendDependency, _: MayManage, lake: Annotated[str, Query(max_length=4_000)]
) -> Response:
    """Make the archive's retention independent of a lake."""
    return reply(existed=await backend.client.admin.receivers.forget_export(queue, lake))


runs = APIRouter(prefix="/v1", tags=["pipeline"], route_class=Guarded)

Before = Annotated[int | None, Query(ge=0, lt=2**63)]

Runs = answer("PipelineRuns", pipeline_runs=list[message.PipelineRun])


@runs.get("/pipeline-runs", response_model=Runs)
async def list_all_pipeline_runs(
    backend: BackendDependency, caller: SeesSome, limit: Limit = 100, before: Before = None
) -> Response:
    """List the runs of jobs, the newest first: those of queues that the token may look at."""
    return reply(
        pipeline_runs=caller.seen(await backend.client.admin.pipeline_runs.list(before=before, limit=limit))
    )


@runs.get("/queues/{queue}/pipeline-runs", response_model=Runs)
async def list_pipeline_runs(
    queue: QueueName, backend: BackendDependency, _: MayLook, limit: Limit = 100, before: Before = None
) -> Response:
    """List the runs of a queue's jobs, the newest first."""
    found = await backend.client.admin.pipeline_runs.list(queue, before=before, limit=limit)
    return reply(pipeline_runs=found)
