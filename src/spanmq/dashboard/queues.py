"""The page of all queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.responses import Response

from spanmq.dashboard.figures import span_of, spans_for
from spanmq.dashboard.page import Page, show
from spanmq.dashboard.standing import Standing, standing_of
from spanmq.dashboard.visit import RefusedError, Visit

SHOWN_MAX: Final = 1_000
# The sort keys of the table, and whether the largest value comes first.
ORDERS: Final[dict[str, tuple[Callable[[Standing], float | str], bool]]] = {
    "queue": (lambda each: each.queue.lower(), False),
    "backlog": (lambda each: each.backlog or 0, True),
    "in_flight": (lambda each: each.in_flight or 0, True),
    "age": (lambda each: each.oldest_ready_seconds or 0.0, True),
    "sent": (lambda each: each.sent_rate, True),
    "settled": (lambda each: each.settled_rate, True),
    "failed": (lambda each: each.failed_rate, True),
    "dead": (lambda each: each.dead_letters, True),
}


async def answer(visit: Visit) -> Response:
    """Show every queue that the caller may look at, and their total figures."""
    order, sought = visit.text("order", "queue"), visit.text("find").strip()
    if order not in ORDERS:
        raise RefusedError(400, "No such order", f"Queues can be ordered by {', '.join(ORDERS)}.")
    key, is_descending = ORDERS[order]
    found = [each for each in await standing_of(visit.behind) if visit.may("look", each.queue)]
    span, spans = span_of(visit), spans_for(len(found))
    rows = sorted(
        (each for each in found if sought.lower() in each.queue.lower()), key=key, reverse=is_descending
    )
    return show(
        visit,
        "queues.html",
        rows=rows[:SHOWN_MAX],
        n_found=len(rows),
        all=found,
        order=order,
        find=sought,
        # A longer span has no charts.
        span=span if span in spans else spans[-1],
        spans=spans,
        total=_total(found),
    )


def _total(found: list[Standing]) -> dict[str, float]:
    return {
        "backlog": sum(each.backlog or 0 for each in found),
        "in_flight": sum(each.in_flight or 0 for each in found),
        "dead_letters": sum(each.dead_letters for each in found),
        "sent_rate": sum(each.sent_rate for each in found),
        "settled_rate": sum(each.settled_rate for each in found),
        "failed_rate": sum(each.failed_rate for each in found),
    }


PAGES: Final = (Page("/", answer),)
