"""Workers, batches of messages, and jobs of the pipeline."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from spanmq.model import Batch, PipelineRun, Progress, RunningHandler, WorkerReport
from spanmq_service.dashboard.formatting import address, text
from spanmq_service.dashboard.listing import Keys, Listing, listing_of
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.page_request import PageRequest

Kind = TypeVar("Kind", Batch, PipelineRun)

SHOWN: Final = 500
# Rows of a page of a list: each page is filtered by what the visitor may see, and reads up to READ for that.
PAGE: Final = 50
READ: Final = 500
NOTICES: Final = {
    "stopped": "The worker is asked to stop: it leaves the list when it has finished what it handles."
}
WORKER_KEYS: Final[Keys[list[WorkerReport]]] = {
    "worker": (lambda reports: reports[0].worker, False),
    "started": (lambda reports: min(report.started_at for report in reports), True),
    "seen": (lambda reports: max(report.seen_at for report in reports), True),
    "slots": (lambda reports: max(report.slots for report in reports), True),
    "held": (lambda reports: sum(report.held for report in reports), True),
}


async def workers(request: PageRequest) -> Response:
    """Show the workers of queues that the visitor may look at."""
    running = request.seen(await request.backend.client.health.workers())
    named: dict[str, list[WorkerReport]] = {}
    for report in running:
        named.setdefault(report.worker, []).append(report)
    listing = listing_of(
        request,
        "/workers",
        named.values(),
        WORKER_KEYS,
        lambda reports: " ".join([reports[0].worker, *(report.queue for report in reports)]),
    )
    return show(
        request,
        "workers.html",
        listing=listing,
        workers=listing.rows[:SHOWN],
        n_found=len(listing.rows),
        progress=progress_of(running)[:SHOWN],
        slow=slow_of(running)[:SHOWN],
        notice=request.notice(NOTICES),
        may_stop=request.may("manage", None),
    )


def progress_of(reports: Iterable[WorkerReport]) -> list[tuple[WorkerReport, Progress]]:
    """Return what running handlers have reported, each with the report of its worker."""
    return [(report, progress) for report in reports for progress in report.progress]


def slow_of(reports: Iterable[WorkerReport]) -> list[tuple[WorkerReport, RunningHandler]]:
    """Return the handlers that took unusually long, each with the report of its worker."""
    return [(report, handler) for report in reports for handler in report.slow]


async def ask_stop(request: PageRequest) -> Response:
    """Show what a worker holds before it is asked to stop."""
    name = request.text("worker")
    reports = [report for report in await request.backend.client.health.workers() if report.worker == name]
    return show(
        request, "worker_stop.html", worker=name, reports=request.seen(reports), is_running=bool(reports)
    )


async def stop(request: PageRequest) -> Response:
    """Ask a worker to stop."""
    await request.form()
    await request.backend.client.admin.stop_worker(request.text("worker"))
    return go(address("/workers", done="stopped"))


async def batches(request: PageRequest) -> Response:
    """Show the batches that send into queues that the visitor may look at, the newest first."""
    before = request.number("before", 0) or None
    read = await request.backend.client.batches.list(before=before, limit=READ)
    listing, last = _page(request, "/batches", read, lambda batch: f"{batch.queue} {text(batch.body)}")
    last_id = last.batch_id if last else None
    return show(
        request, "batches.html", before=before, listing=listing, batches=listing.rows[:PAGE], last=last_id
    )


async def pipeline_runs(request: PageRequest) -> Response:
    """Show the runs of jobs that the visitor may look at, the newest first."""
    return await _runs(request, None)


async def pipeline_runs_of_queue(request: PageRequest) -> Response:
    """Show those of a queue."""
    return await _runs(request, request.queue)


async def _runs(request: PageRequest, queue: str | None) -> Response:
    before = request.number("before", 0) or None
    read = await request.backend.client.admin.pipeline_runs.list(queue, before=before, limit=READ)
    path, query = ("/pipeline-runs", {}) if queue is None else ("/queue/pipeline-runs", {"queue": queue})
    listing, last = _page(
        request,
        path,
        read,
        lambda run: " ".join(filter(None, (run.job, run.queue, run.state, run.target, run.error))),
        **query,
    )
    last_id = last.run_id if last else None
    return show(
        request,
        "pipeline_runs.html",
        queue=queue,
        before=before,
        listing=listing,
        runs=listing.rows[:PAGE],
        last=last_id,
    )


def _page(
    request: PageRequest, path: str, read: Sequence[Kind], words: Callable[[Kind], str], **query: str
) -> tuple[Listing[Kind], Kind | None]:
    """Return those that match and that the visitor may look at, and the one before which the next page begins."""
    listing: Listing[Kind] = listing_of(request, path, request.seen(read), {}, words, **query)
    rows = listing.rows
    last = rows[PAGE - 1] if len(rows) > PAGE else read[-1] if len(read) == READ else None
    return listing, last


PAGES: Final = (
    Page("/workers", workers),
    Page("/workers/stop", ask_stop, "manage", of_all=True),
    Page("/workers/stop", stop, "manage", of_all=True, method="POST"),
    Page("/batches", batches),
    Page("/pipeline-runs", pipeline_runs),
    Page("/queue/pipeline-runs", pipeline_runs_of_queue, of_queue=True),
)
