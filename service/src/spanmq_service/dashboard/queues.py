"""The page of all queues: what needs attention first, and every queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from starlette.responses import Response

from spanmq.model import REASONS
from spanmq_service.dashboard.attention import Problem, problems_of
from spanmq_service.dashboard.failing import SECTION, causes
from spanmq_service.dashboard.figures import span_of, spans_for
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.standing import Standing, standing_of
from spanmq_service.dashboard.visit import RefusedError, Visit

FIRST: Final = "attention"
NOTICES: Final = {"dropped": "Dropped: the queue and its messages are gone."}
# Rows of a page, and queues in the section of those that need attention.
SHOWN: Final = 50
ATTENTION: Final = 10
# Queues whose causes of failures are read.
WORST: Final = 20
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
    """Show what needs attention, every queue that the caller may look at, and their total figures."""
    order, sought = visit.text("order", FIRST), visit.text("find").strip()
    if order not in (FIRST, *ORDERS):
        raise RefusedError(400, "No such order", f"Queues can be ordered by {', '.join((FIRST, *ORDERS))}.")
    latest, failing, problems = await asyncio.gather(
        standing_of(visit.backend), causes(visit, limit=WORST), problems_of(visit)
    )
    found = visit.seen(latest)
    span, spans = span_of(visit), spans_for(len(found))
    rows = _ordered((each for each in found if sought.lower() in each.queue.lower()), order, problems)
    pages = max((len(rows) + SHOWN - 1) // SHOWN, 1)
    page = min(max(visit.number("page", 1), 1), pages)
    shown = rows[(page - 1) * SHOWN : page * SHOWN]
    # Counted are the queues of the page, and those whose messages no sample has.
    names = {each.queue for each in shown} | {
        each.queue for each in found if each.sampled_at is None and each.sent_total
    }
    counted = {each.queue: each for each in await standing_of(visit.backend, sorted(names))}
    found = [counted.get(each.queue, each) for each in found]
    urgent = _ordered((each for each in found if each.queue in problems), FIRST, problems)
    return show(
        visit,
        "queues.html",
        rows=_ordered((counted.get(each.queue, each) for each in shown), order, problems),
        n_found=len(rows),
        page=page,
        pages=pages,
        problems=problems,
        urgent=urgent[:ATTENTION],
        n_urgent=len(urgent),
        all=found,
        order=order,
        find=sought,
        # A longer span has no charts.
        span=span if span in spans else spans[-1],
        spans=spans,
        total=_total(found),
        failing=failing,
        failing_shown=SECTION,
        notice=visit.notice(NOTICES),
        may_create=visit.caller is not None and "manage" in visit.caller.verbs,
    )


def _ordered(
    standings: Iterable[Standing], order: str, problems: Mapping[str, list[Problem]]
) -> list[Standing]:
    """Return queues in an order of the table."""
    if order == FIRST:
        return sorted(standings, key=lambda each: _urgency(each, problems))
    key, is_descending = ORDERS[order]
    return sorted(standings, key=key, reverse=is_descending)


def _urgency(standing: Standing, problems: Mapping[str, list[Problem]]) -> tuple[int, int, str]:
    """Return what sorts the most urgent first, then those with the most messages."""
    rank = min((each.rank for each in problems.get(standing.queue, ())), default=len(REASONS))
    return rank, -(standing.backlog or 0), standing.queue.lower()


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
