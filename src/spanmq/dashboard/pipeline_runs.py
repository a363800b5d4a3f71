"""What jobs of the pipeline did: exports, backfills, migrations and the like."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from spanmq.dashboard.page import Page, show
from spanmq.dashboard.visit import Visit
from spanmq.model import PipelineRun

SHOWN: Final = 50
# Pages are filtered by the caller's rights: this number of runs is searched for one of them.
LOOKED_AT: Final = 500


async def all_runs(visit: Visit) -> Response:
    """Show the runs of jobs that the visitor may look at, the newest first."""
    return await _show(visit, None)


async def of_queue(visit: Visit) -> Response:
    """Show those of a queue."""
    return await _show(visit, visit.queue)


async def _show(visit: Visit, queue: str | None) -> Response:
    before = visit.number("before", 0) or None
    found = await visit.behind.client.admin.pipeline_runs.list(queue, before=before, quantity=LOOKED_AT)
    runs = [each for each in found if visit.may("look", each.queue)]
    last = _last(found, runs)
    return show(visit, "pipeline_runs.html", queue=queue, before=before, runs=runs[:SHOWN], last=last)


def _last(found: list[PipelineRun], runs: list[PipelineRun]) -> int | None:
    """Return the id before which the next page begins, if there may be one."""
    if len(runs) > SHOWN:
        return runs[SHOWN - 1].run_id
    return found[-1].run_id if len(found) == LOOKED_AT else None


PAGES: Final = (
    Page("/pipeline-runs", all_runs),
    Page("/queue/pipeline-runs", of_queue, of_queue=True),
)
