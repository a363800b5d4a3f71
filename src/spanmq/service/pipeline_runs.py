"""Routes of the runs of the pipeline's jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from spanmq.model import PipelineRun
from spanmq.service.access import Guarded
from spanmq.service.json_text import reply
from spanmq.service.parts import Behind, MayLook, Quantity, QueueName, SeesSome, answer

routes = APIRouter(prefix="/v1", tags=["pipeline"], route_class=Guarded)

Before = Annotated[int | None, Query(ge=0, lt=2**63)]

Runs = answer("PipelineRuns", pipeline_runs=list[PipelineRun])


@routes.get("/pipeline-runs", response_model=Runs)
async def list_all_pipeline_runs(
    backend: Behind, caller: SeesSome, quantity: Quantity = 100, before: Before = None
) -> Response:
    """List the runs of jobs on the queues that the token may look at, the newest first."""
    found = await backend.client.admin.pipeline_runs.list(before=before, quantity=quantity)
    return reply(pipeline_runs=[each for each in found if caller.may("look", each.queue)])


@routes.get("/queues/{queue}/pipeline-runs", response_model=Runs)
async def list_pipeline_runs(
    queue: QueueName, backend: Behind, _: MayLook, quantity: Quantity = 100, before: Before = None
) -> Response:
    """List the runs of a queue's jobs, the newest first."""
    found = await backend.client.admin.pipeline_runs.list(queue, before=before, quantity=quantity)
    return reply(pipeline_runs=found)
