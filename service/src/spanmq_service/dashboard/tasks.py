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
from spanmq_service.dashboard.page_request import PageRequest, RefusedError

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
    "task": (lambda task: task.kind, False),
    "queue": (lambda task: task.queue.lower(), False),
    "done": (lambda task: task.done, True),
    "failed": (lambda task: task.failed, True),
    "rate": (lambda task: task.failed / max(task.done + task.failed, 1), True),
    "p50": (lambda task: task.p50, True),
    "p95": (lambda task: task.p95, True),
}


async def answer(request: PageRequest) -> Response:
    """Show the kinds of tasks in queues that the visitor may look at, those with the most failures first."""
    span = _span(request)
    kinds = request.seen(await request.backend.client.health.task_kinds(seconds=span.seconds))
    kinds.sort(key=lambda task: (-task.failed, -task.done))
    listing = listing_of(
        request, "/tasks", kinds, KEYS, lambda task: f"{task.kind} {task.queue}", span=span.name
    )
    return show(
        request,
        "tasks.html",
        listing=listing,
        kinds=listing.rows[:SHOWN],
        n_found=len(listing.rows),
        span=span,
        spans=SPANS,
        failing=[cause for cause in await causes(request) if cause.task is not None],
        failing_shown=CAUSES,
    )


async def one(request: PageRequest) -> Response:
    """Show how often a kind of task of a queue was done and failed, how long it took, and what it fails of now."""
    span, kind, client = _span(request), request.text("task"), request.backend.client
    steps = await client.health.task_statistics(request.queue, kind, seconds=span.seconds, step=span.step)
    kinds = await client.health.task_kinds(request.queue, seconds=span.seconds)
    return show(
        request,
        "task.html",
        queue=request.queue,
        task=kind,
        total=next((task for task in kinds if task.kind == kind), None),
        span=span,
        spans=SPANS,
        steps=[step for step in reversed(steps) if step.done or step.failed],
        failing=[cause for cause in await causes(request, request.queue) if cause.task == kind],
        failing_shown=CAUSES,
    )


async def chart(request: PageRequest) -> Response:
    """Draw one of the charts of a kind of task."""
    span, name = _span(request), request.text("of")
    if name not in TASK_CHARTS:
        raise RefusedError(400, "No such chart", f"There are {', '.join(TASK_CHARTS)}.")
    steps = await request.backend.client.health.task_statistics(
        request.queue, request.text("task"), seconds=span.seconds, step=span.step
    )
    shape: Shape = "narrow" if request.text("shape") == "narrow" else "wide"
    picture = await asyncio.to_thread(draw, TASK_CHARTS[name], steps, span.step, shape)
    return Response(picture, 200, PICTURE_HEADERS, "image/svg+xml")


def _span(request: PageRequest) -> Span:
    name = request.text("span")
    return next((span for span in SPANS if span.name == name), DEFAULT)


PAGES: Final = (
    Page("/tasks", answer),
    Page("/task", one, of_queue=True),
    Page("/task/chart", chart, of_queue=True),
)
