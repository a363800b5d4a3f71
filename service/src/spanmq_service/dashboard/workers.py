"""Workers, batches of messages, and jobs of the pipeline."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from starlette.responses import Response

from spanmq.model import Batch, PipelineRun, Progress, RunningHandler, WorkerReport
from spanmq_service.dashboard.listing import Keys, Listing, listing_of
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import address, text

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
    "started": (lambda reports: min(each.started_at for each in reports), True),
    "seen": (lambda reports: max(each.seen_at for each in reports), True),
    "slots": (lambda reports: max(each.slots for each in reports), True),
    "held": (lambda reports: sum(each.held for each in reports), True),
}


async def workers(visit: Visit) -> Response:
    """Show the workers of queues that the visitor may look at."""
    found = visit.seen(await visit.backend.client.health.workers())
    named: dict[str, list[WorkerReport]] = {}
    for each in found:
        named.setdefault(each.worker, []).append(each)
    listing = listing_of(
        visit,
        "/workers",
        named.values(),
        WORKER_KEYS,
        lambda reports: " ".join([reports[0].worker, *(each.queue for each in reports)]),
    )
    return show(
        visit,
        "workers.html",
        listing=listing,
        workers=listing.rows[:SHOWN],
        n_found=len(listing.rows),
        progress=progress_of(found)[:SHOWN],
        slow=slow_of(found)[:SHOWN],
        notice=visit.notice(NOTICES),
        may_stop=visit.may("manage", None),
    )


def progress_of(reports: Iterable[WorkerReport]) -> list[tuple[WorkerReport, Progress]]:
    """Return what running handlers have reported, each with the report of its worker."""
    return [(report, each) for report in reports for each in report.progress]


def slow_of(reports: Iterable[WorkerReport]) -> list[tuple[WorkerReport, RunningHandler]]:
    """Return the handlers that took unusually long, each with the report of its worker."""
    return [(report, each) for report in reports for each in report.slow]


async def ask_stop(visit: Visit) -> Response:
    """Show what a worker holds before it is asked to stop."""
    name = visit.text("worker")
    reports = [each for each in await visit.backend.client.health.workers() if each.worker == name]
    return show(visit, "worker_stop.html", worker=name, reports=visit.seen(reports), is_running=bool(reports))


async def stop(visit: Visit) -> Response:
    """Ask a worker to stop."""
    await visit.form()
    await visit.backend.client.admin.stop_worker(visit.text("worker"))
    return go(address("/workers", done="stopped"))


async def batches(visit: Visit) -> Response:
    """Show the batches that send into queues that the visitor may look at, the newest first."""
    before = visit.number("before", 0) or None
    read = await visit.backend.client.batches.list(before=before, limit=READ)
    listing, last = _page(visit, "/batches", read, lambda each: f"{each.queue} {text(each.body)}")
    last_id = last.batch_id if last else None
    return show(
        visit, "batches.html", before=before, listing=listing, batches=listing.rows[:PAGE], last=last_id
    )


async def pipeline_runs(visit: Visit) -> Response:
    """Show the runs of jobs that the visitor may look at, the newest first."""
    return await _runs(visit, None)


async def pipeline_runs_of_queue(visit: Visit) -> Response:
    """Show those of a queue."""
    return await _runs(visit, visit.queue)


async def _runs(visit: Visit, queue: str | None) -> Response:
    before = visit.number("before", 0) or None
    read = await visit.backend.client.admin.pipeline_runs.list(queue, before=before, limit=READ)
    path, query = ("/pipeline-runs", {}) if queue is None else ("/queue/pipeline-runs", {"queue": queue})
    listing, last = _page(
        visit,
        path,
        read,
        lambda each: " ".join(filter(None, (each.job, each.queue, each.state, each.target, each.error))),
        **query,
    )
    last_id = last.run_id if last else None
    return show(
        visit,
        "pipeline_runs.html",
        queue=queue,
        before=before,
        listing=listing,
        runs=listing.rows[:PAGE],
        last=last_id,
    )


def _page(
    visit: Visit, path: str, read: Sequence[Kind], words: Callable[[Kind], str], **query: str
) -> tuple[Listing[Kind], Kind | None]:
    """Return those that match and that the visitor may look at, and the one before which the next page begins."""
    listing: Listing[Kind] = listing_of(visit, path, visit.seen(read), {}, words, **query)
    found = listing.rows
    last = found[PAGE - 1] if len(found) > PAGE else read[-1] if len(read) == READ else None
    return listing, last


PAGES: Final = (
    Page("/workers", workers),
    Page("/workers/stop", ask_stop, "manage", of_all=True),
    Page("/workers/stop", stop, "manage", of_all=True, method="POST"),
    Page("/batches", batches),
    Page("/pipeline-runs", pipeline_runs),
    Page("/queue/pipeline-runs", pipeline_runs_of_queue, of_queue=True),
)
