"""Workers, kinds of tasks, batches of messages, and jobs of the pipeline."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from spanmq.dashboard.failing import causes
from spanmq.dashboard.page import Page, show
from spanmq.dashboard.visit import Visit
from spanmq.model import Batch, PipelineRun, Progress, WorkerReport

Kind = TypeVar("Kind", Batch, PipelineRun)

SHOWN: Final = 500
# Rows of a page of a list: each page is filtered by what the visitor may see, and reads up to READ for that.
PAGE: Final = 50
READ: Final = 500
SPANS: Final = {"10m": 600, "1h": 3600, "1d": 86400}


async def workers(visit: Visit) -> Response:
    """Show the workers of queues that the visitor may look at."""
    found = visit.seen(await visit.backend.client.health.workers())
    return show(
        visit, "workers.html", workers=found[:SHOWN], n_found=len(found), progress=progress_of(found)[:SHOWN]
    )


def progress_of(reports: Iterable[WorkerReport]) -> list[tuple[WorkerReport, Progress]]:
    """Return what running handlers have reported, each with the report of its worker."""
    return [(report, each) for report in reports for each in report.progress]


async def tasks(visit: Visit) -> Response:
    """Show the kinds of tasks in queues that the visitor may look at, those with the most failures first."""
    span = visit.text("span") if visit.text("span") in SPANS else "1h"
    found = visit.seen(await visit.backend.client.health.task_kinds(seconds=SPANS[span]))
    found.sort(key=lambda each: (-each.failed, -each.done))
    return show(
        visit,
        "tasks.html",
        kinds=found[:SHOWN],
        n_found=len(found),
        span=span,
        spans=SPANS,
        seconds=SPANS[span],
        failing=[each for each in await causes(visit) if each.task is not None],
        failing_shown=PAGE,
    )


async def batches(visit: Visit) -> Response:
    """Show the batches that send into queues that the visitor may look at, the newest first."""
    before = visit.number("before", 0) or None
    read = await visit.backend.client.batches.list(before=before, limit=READ)
    shown, last = _page(visit, read)
    last_id = last.batch_id if last else None
    return show(visit, "batches.html", before=before, batches=shown, last=last_id)


async def pipeline_runs(visit: Visit) -> Response:
    """Show the runs of jobs that the visitor may look at, the newest first."""
    return await _runs(visit, None)


async def pipeline_runs_of_queue(visit: Visit) -> Response:
    """Show those of a queue."""
    return await _runs(visit, visit.queue)


async def _runs(visit: Visit, queue: str | None) -> Response:
    before = visit.number("before", 0) or None
    read = await visit.backend.client.admin.pipeline_runs.list(queue, before=before, limit=READ)
    shown, last = _page(visit, read)
    last_id = last.run_id if last else None
    return show(visit, "pipeline_runs.html", queue=queue, before=before, runs=shown, last=last_id)


def _page(visit: Visit, read: Sequence[Kind]) -> tuple[list[Kind], Kind | None]:
    """Return a page of those that the visitor may look at, and the one before which the next begins, if any."""
    found = visit.seen(read)
    last = found[PAGE - 1] if len(found) > PAGE else read[-1] if len(read) == READ else None
    return found[:PAGE], last


PAGES: Final = (
    Page("/workers", workers),
    Page("/tasks", tasks),
    Page("/batches", batches),
    Page("/pipeline-runs", pipeline_runs),
    Page("/queue/pipeline-runs", pipeline_runs_of_queue, of_queue=True),
)
