"""Figures of queues over time: as charts, and as a table for readers who cannot see charts."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.responses import Response

from spanmq.model import StatisticsStep, folded
from spanmq_service.dashboard.chart import CHARTS, Shape, draw
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.page_request import PageRequest, RefusedError


@dataclass(frozen=True, slots=True)
class Span:
    """The period of a chart and the length of its steps: 60 to 150 of them."""

    name: str
    words: str
    seconds: float
    step: float


SPANS: Final = (
    Span("1h", "1 hour", 3_600.0, 60.0),
    Span("6h", "6 hours", 21_600.0, 180.0),
    Span("1d", "1 day", 86_400.0, 900.0),
    Span("3d", "3 days", 259_200.0, 1_800.0),
)
# A picture runs no script, in our page or by itself; its style is its own.
PICTURE_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "Cache-Control": "private, max-age=20",
}


# The number of samples that one chart may sum, because the caller waits for it.
SAMPLES_MAX: Final = 40_000
SAMPLE_SECONDS: Final = 60.0


def spans_for(queues: int) -> tuple[Span, ...]:
    """Return the spans over which the figures of this number of queues can be summed; always the shortest."""
    return SPANS[:1] + tuple(
        span for span in SPANS[1:] if queues * span.seconds / SAMPLE_SECONDS <= SAMPLES_MAX
    )


def span_of(request: PageRequest) -> Span:
    """Return the span that the URL names."""
    name = request.text("span", SPANS[0].name)
    for span in SPANS:
        if span.name == name:
            return span
    raise RefusedError(400, "No such span", f"Figures go back {', '.join(span.name for span in SPANS)}.")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of queues; `since`: when the oldest of them was created, None without queues."""

    queue: str | None
    spans: tuple[Span, ...]
    steps: list[StatisticsStep]
    since: datetime | None


async def _figures(request: PageRequest, span: Span) -> Figures:
    queue = request.text("queue") or None
    if queue is not None:
        request.check("look", queue)
    client = request.backend.client
    queues = [
        record
        for record in await client.queues.list()
        if (folded(record.name) == folded(queue) if queue is not None else request.may("look", record.name))
    ]
    names = [record.name for record in queues]
    spans = spans_for(len(names))
    if span not in spans:
        raise RefusedError(400, "Too much at once", "For this span select one queue, or fewer queues.")
    steps = await client.health.total(names, seconds=span.seconds, step=span.step)
    return Figures(queue, spans, steps, min((record.created_at for record in queues), default=None))


async def chart(request: PageRequest) -> Response:
    """Draw one of the charts."""
    span, name = span_of(request), request.text("of")
    if name not in CHARTS:
        raise RefusedError(400, "No such chart", f"There are {', '.join(CHARTS)}.")
    figures = await _figures(request, span)
    shape: Shape = "narrow" if request.text("shape") == "narrow" else "wide"
    # In a thread: other requests need not wait while it is drawn.
    picture = await asyncio.to_thread(
        draw, CHARTS[name], figures.steps, span.step, shape, since=figures.since
    )
    return Response(picture, 200, PICTURE_HEADERS, "image/svg+xml")


async def table(request: PageRequest) -> Response:
    """Show the same as a table, the newest first."""
    span = span_of(request)
    figures = await _figures(request, span)
    return show(
        request,
        "figures.html",
        queue=figures.queue,
        span=span,
        spans=figures.spans,
        steps=figures.steps[::-1],
    )


PAGES: Final = (Page("/chart", chart), Page("/figures", table))
