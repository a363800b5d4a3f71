"""Routes of the streams that consume queues, and of the jobs of the pipeline."""

from typing import Annotated

from msgspec import Meta
from starlette.responses import Response

from spanmq import model as message
from spanmq_service.backend import Backend
from spanmq_service.http.json_text import reply
from spanmq_service.routes.parts import (
    Existed,
    Limit,
    MayLook,
    MayManage,
    QueueName,
    SeesSome,
    answer,
)
from spanmq_service.routes.table import Table

routes = Table("streams")

Receiver = Annotated[str, Meta(min_length=1, max_length=200, description="Its label or id.")]

Receivers = answer("Receivers", receivers=list[message.Receiver])


@routes.get("/receivers", answer=Receivers)
async def list_all_receivers(backend: Backend, caller: SeesSome) -> Response:
    """List the streams of queues that the token may look at."""
    return reply(receivers=caller.seen(await backend.client.admin.receivers.list()))


@routes.get("/queues/{queue}/receivers", answer=Receivers)
async def list_receivers(queue: QueueName, backend: Backend, _: MayLook) -> Response:
    """List the streams that consume a queue."""
    return reply(receivers=await backend.client.admin.receivers.list(queue))


@routes.post("/queues/{queue}/receivers/{receiver}/adopt", answer=answer("Adopted", receiver=str))
async def adopt_receiver(queue: QueueName, receiver: Receiver, backend: Backend, _: MayManage) -> Response:
    """Allow the next new checkpoint with this label to replace the stream."""
    await backend.client.admin.receivers.adopt(queue, receiver)
    return reply(receiver=receiver)


@routes.post("/queues/{queue}/receivers/{receiver}/release", answer=answer("Released", released=int))
async def release_receiver(
    queue: QueueName,
    receiver: Receiver,
    backend: Backend,
    _: MayManage,
    settled: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None,
) -> Response:
    """Release the messages that a stream holds to the queue."""
    return reply(released=await backend.client.admin.receivers.release(queue, receiver, settled))


@routes.post("/queues/{queue}/forget-export", answer=Existed)
async def forget_export(
    queue: QueueName, backend: Backend, _: MayManage, lake: Annotated[str, Meta(max_length=4_000)]
) -> Response:
    """Make the archive's retention independent of a lake."""
    return reply(existed=await backend.client.admin.receivers.forget_export(queue, lake))


runs = Table("pipeline")

Before = Annotated[int, Meta(ge=0, le=2**63 - 1)] | None

Runs = answer("PipelineRuns", pipeline_runs=list[message.PipelineRun])


@runs.get("/pipeline-runs", answer=Runs)
async def list_all_pipeline_runs(
    backend: Backend, caller: SeesSome, limit: Limit = 100, before: Before = None
) -> Response:
    """List the runs of jobs, the newest first: those of queues that the token may look at."""
    return reply(
        pipeline_runs=caller.seen(await backend.client.admin.pipeline_runs.list(before=before, limit=limit))
    )


@runs.get("/queues/{queue}/pipeline-runs", answer=Runs)
async def list_pipeline_runs(
    queue: QueueName, backend: Backend, _: MayLook, limit: Limit = 100, before: Before = None
) -> Response:
    """List the runs of a queue's jobs, the newest first."""
    found = await backend.client.admin.pipeline_runs.list(queue, before=before, limit=limit)
    return reply(pipeline_runs=found)
