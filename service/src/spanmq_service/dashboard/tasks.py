"""Kinds of tasks: all of them, and one with its charts."""

import asyncio
from typing import Final

from starlette.responses import Response

from spanmq.model import TaskKind
from spanmq_service.dashboard.chart import TASK_CHARTS, Shape, draw
from spanmq_service.dashboard.failing import causes
from spanmq_service.dashboard.figures import PICTURE_HEADERS, Span
from spanmq_service.dashboard.listing import Keys, listing_of
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.visit import RefusedError, Visit

SHOWN: Final = 500
CAUSES: Final = 50
# Times of tasks are kept for a day, a row for each minute.
SPANS: Final = (
    Span("10m", "10 minutes", 600.0, 60.0),
    Span("1h", "1 hour", 3_600.0, 60.0),
    Span("1d", "1 day", 86_400.0, 900.0),
)
DEFAULT: Final = SPANS[1]
KEYS: Final[Keys[TaskKind]] = {
    "task": (lambda each: each.kind, False),
    "queue": (lambda each: each.queue.lower(), False),
    "done": (lambda each: each.done, True),
    "failed": (lambda each: each.failed, True),
    "rate": (lambda each: each.failed / max(each.done + each.failed, 1), True),
    "p50": (lambda each: each.p50, True),
    "p95": (lambda each: each.p95, True),
}


async def answer(visit: Visit) -> Response:
    """Show the kinds of tasks in queues that the visitor may look at, those with the most failures first."""
    span = _span(visit)
    found = visit.seen(await visit.backend.client.health.task_kinds(seconds=span.seconds))
    found.sort(key=lambda each: (-each.failed, -each.done))
    listing = listing_of(
        visit, "/tasks", found, KEYS, lambda each: f"{each.kind} {each.queue}", span=span.name
    )
    return show(
        visit,
        "tasks.html",
        listing=listing,
        kinds=listing.rows[:SHOWN],
        n_found=len(listing.rows),
        span=span,
        spans=SPANS,
        failing=[each for each in await causes(visit) if each.task is not None],
        failing_shown=CAUSES,
    )


async def one(visit: Visit) -> Response:
    """Show how often a kind of task of a queue was done and failed, how long it took, and what it fails of now."""
    span, kind, client = _span(visit), visit.text("task"), visit.backend.client
    steps = await client.health.task_statistics(visit.queue, kind, seconds=span.seconds, step=span.step)
    kinds = await client.health.task_kinds(visit.queue, seconds=span.seconds)
    return show(
        visit,
        "task.html",
        queue=visit.queue,
        task=kind,
        total=next((each for each in kinds if each.kind == kind), None),
        span=span,
        spans=SPANS,
        steps=[each for each in reversed(steps) if each.done or each.failed],
        failing=[each for each in await causes(visit, visit.queue) if each.task == kind],
        failing_shown=CAUSES,
    )


async def chart(visit: Visit) -> Response:
    """Draw one of the charts of a kind of task."""
    span, wanted = _span(visit), visit.text("of")
    if wanted not in TASK_CHARTS:
        raise RefusedError(400, "No such chart", f"There are {', '.join(TASK_CHARTS)}.")
    steps = await visit.backend.client.health.task_statistics(
        visit.queue, visit.text("task"), seconds=span.seconds, step=span.step
    )
    shape: Shape = "narrow" if visit.text("shape") == "narrow" else "wide"
    picture = await asyncio.to_thread(draw, TASK_CHARTS[wanted], steps, span.step, shape)
    return Response(picture, 200, PICTURE_HEADERS, "image/svg+xml")


def _span(visit: Visit) -> Span:
    name = visit.text("span")
    return next((each for each in SPANS if each.name == name), DEFAULT)


PAGES: Final = (
    Page("/tasks", answer),
    Page("/task", one, of_queue=True),
    Page("/task/chart", chart, of_queue=True),
)
