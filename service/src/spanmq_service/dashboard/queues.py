"""The page of all queues: what needs attention first, and every queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from starlette.responses import Response

from spanmq.model import REASONS
from spanmq_service.dashboard.attention import QueueProblem, problems_of
from spanmq_service.dashboard.failing import SECTION, causes
from spanmq_service.dashboard.figures import span_of, spans_for
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.page_request import PageRequest, RefusedError
from spanmq_service.dashboard.queue_state import QueueState, queue_states

FIRST: Final = "attention"
NOTICES: Final = {"dropped": "Dropped: the queue and its messages are gone."}
# Rows of a page, and queues in the section of those that need attention.
SHOWN: Final = 50
ATTENTION: Final = 10
# Queues whose causes of failures are read.
WORST: Final = 20
# The sort keys of the table, and whether the largest value comes first.
ORDERS: Final[dict[str, tuple[Callable[[QueueState], float | str], bool]]] = {
    "queue": (lambda state: state.queue.lower(), False),
    "backlog": (lambda state: state.backlog or 0, True),
    "in_flight": (lambda state: state.in_flight or 0, True),
    "age": (lambda state: state.oldest_ready_seconds or 0.0, True),
    "sent": (lambda state: state.sent_rate, True),
    "settled": (lambda state: state.settled_rate, True),
    "failed": (lambda state: state.failed_rate, True),
    "dead": (lambda state: state.dead_letters, True),
}


async def answer(request: PageRequest) -> Response:
    """Show what needs attention, every queue that the caller may look at, and their total figures."""
    order, sought = request.text("order", FIRST), request.text("find").strip()
    if order not in (FIRST, *ORDERS):
        raise RefusedError(400, "No such order", f"Queues can be ordered by {', '.join((FIRST, *ORDERS))}.")
    latest, failing, problems = await asyncio.gather(
        queue_states(request.backend), causes(request, limit=WORST), problems_of(request)
    )
    states = request.seen(latest)
    span, spans = span_of(request), spans_for(len(states))
    rows = _ordered((state for state in states if sought.lower() in state.queue.lower()), order, problems)
    pages = max((len(rows) + SHOWN - 1) // SHOWN, 1)
    page = min(max(request.number("page", 1), 1), pages)
    shown = rows[(page - 1) * SHOWN : page * SHOWN]
    # Counted are the queues of the page, and those whose messages no sample has.
    names = {state.queue for state in shown} | {
        state.queue for state in states if state.sampled_at is None and state.sent_total
    }
    counted = {state.queue: state for state in await queue_states(request.backend, sorted(names))}
    states = [counted.get(state.queue, state) for state in states]
    urgent = _ordered((state for state in states if state.queue in problems), FIRST, problems)
    return show(
        request,
        "queues.html",
        rows=_ordered((counted.get(state.queue, state) for state in shown), order, problems),
        n_found=len(rows),
        page=page,
        pages=pages,
        problems=problems,
        urgent=urgent[:ATTENTION],
        n_urgent=len(urgent),
        all=states,
        order=order,
        find=sought,
        # A longer span has no charts.
        span=span if span in spans else spans[-1],
        spans=spans,
        total=_total(states),
        failing=failing,
        failing_shown=SECTION,
        notice=request.notice(NOTICES),
        may_create=request.caller is not None and "manage" in request.caller.verbs,
    )


def _ordered(
    states: Iterable[QueueState], order: str, problems: Mapping[str, list[QueueProblem]]
) -> list[QueueState]:
    """Return queues in an order of the table."""
    if order == FIRST:
        return sorted(states, key=lambda state: _urgency(state, problems))
    key, is_descending = ORDERS[order]
    return sorted(states, key=key, reverse=is_descending)


def _urgency(state: QueueState, problems: Mapping[str, list[QueueProblem]]) -> tuple[int, int, str]:
    """Return what sorts the most urgent first, then those with the most messages."""
    rank = min((problem.rank for problem in problems.get(state.queue, ())), default=len(REASONS))
    return rank, -(state.backlog or 0), state.queue.lower()


def _total(states: list[QueueState]) -> dict[str, float]:
    return {
        "backlog": sum(state.backlog or 0 for state in states),
        "in_flight": sum(state.in_flight or 0 for state in states),
        "dead_letters": sum(state.dead_letters for state in states),
        "sent_rate": sum(state.sent_rate for state in states),
        "settled_rate": sum(state.settled_rate for state in states),
        "failed_rate": sum(state.failed_rate for state in states),
    }


PAGES: Final = (Page("/", answer),)
