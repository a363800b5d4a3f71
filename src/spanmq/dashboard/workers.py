"""Running workers, the messages that they hold, and the figures of their tasks by kind."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from spanmq.dashboard.page import Page, show
from spanmq.dashboard.visit import Visit

SHOWN: Final = 500
SPANS: Final = {"10m": 600, "1h": 3600, "1d": 86400}


async def workers(visit: Visit) -> Response:
    """Show the workers of queues that the visitor may look at."""
    found = [each for each in await visit.behind.client.health.workers() if visit.may("look", each.queue)]
    return show(visit, "workers.html", workers=found[:SHOWN], n_found=len(found))


async def tasks(visit: Visit) -> Response:
    """Show the kinds of tasks in queues that the visitor may look at, those with the most failures first."""
    span = visit.text("span") if visit.text("span") in SPANS else "1h"
    read = await visit.behind.client.health.task_kinds(seconds=SPANS[span])
    found = [each for each in read if visit.may("look", each.queue)]
    found.sort(key=lambda each: (-each.failed, -each.done))
    return show(
        visit,
        "tasks.html",
        kinds=found[:SHOWN],
        n_found=len(found),
        span=span,
        spans=SPANS,
        seconds=SPANS[span],
    )


PAGES: Final = (Page("/workers", workers), Page("/tasks", tasks))
