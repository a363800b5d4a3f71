"""The page of all queues, and their state: exact where counting is cheap, otherwise from the last sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.responses import Response

from spanmq.dashboard.failing import SECTION, causes
from spanmq.dashboard.figures import span_of, spans_for
from spanmq.dashboard.page import Page, show
from spanmq.dashboard.visit import RefusedError, Visit
from spanmq.model import LatestStatistics, QueueCount
from spanmq.service.backend import Backend

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
# A queue that had more when it was sampled is not looked at: it would be in vain.
GLANCED_MAX: Final = 20_000


async def answer(visit: Visit) -> Response:
    """Show every queue that the caller may look at, and their total figures."""
    order, sought = visit.text("order", "queue"), visit.text("find").strip()
    if order not in ORDERS:
        raise RefusedError(400, "No such order", f"Queues can be ordered by {', '.join(ORDERS)}.")
    key, is_descending = ORDERS[order]
    found = visit.seen(await standing_of(visit.behind))
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
        failing=await causes(visit),
        failing_shown=SECTION,
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


@dataclass(frozen=True, slots=True)
class Standing:
    """One queue. `is_exact`: the counts are current; otherwise of `sampled_at`, or unknown (None)."""

    queue: str
    is_exact: bool
    backlog: int | None
    visible: int | None
    in_flight: int | None
    hidden: int | None
    dead_letters: int
    sent_total: int
    oldest_ready_seconds: float | None
    sent_rate: float
    settled_rate: float
    failed_rate: float
    sampled_at: datetime | None
    is_paused: bool
    breaker_open_until: datetime | None
    lacks_worker: bool


async def standing_of(behind: Backend, names: Sequence[str] | None = None) -> list[Standing]:
    """Return the state of these queues (None: all); queues that do not exist are left out."""
    latest = await behind.client.health.latest()
    if names is not None:
        wanted = {name.lower() for name in names}
        latest = [each for each in latest if each.queue.lower() in wanted]
    small = [each.queue for each in latest if each.backlog <= GLANCED_MAX]
    glances = {each.queue: each for each in await behind.client.inspect.count(small)} if small else {}
    return [_standing(each, glances.get(each.queue)) for each in latest]


def _standing(latest: LatestStatistics, glance: QueueCount | None) -> Standing:
    seconds = latest.duration_seconds or 1.0
    is_exact = glance is not None and glance.is_exact
    is_known = is_exact or latest.sampled_at is not None
    counts: QueueCount | LatestStatistics = glance if glance is not None and is_exact else latest
    backlog, visible, in_flight = (counts.backlog, counts.visible, counts.in_flight)
    hidden = None
    if backlog is not None and visible is not None and in_flight is not None:
        hidden = max(backlog - visible - in_flight, 0)
    return Standing(
        queue=latest.queue,
        is_exact=is_exact,
        backlog=backlog if is_known else None,
        visible=visible if is_known else None,
        in_flight=in_flight if is_known else None,
        hidden=hidden if is_known else None,
        dead_letters=latest.dead_letters,
        sent_total=latest.sent_total,
        # For an empty queue, the last sample may include messages that have since been settled.
        oldest_ready_seconds=latest.oldest_ready_seconds if visible else None,
        sent_rate=latest.sent / seconds,
        settled_rate=latest.settled / seconds,
        failed_rate=latest.failed / seconds,
        sampled_at=latest.sampled_at,
        is_paused=latest.is_paused,
        breaker_open_until=latest.breaker_open_until,
        lacks_worker=latest.lacks_worker(visible, in_flight),
    )


PAGES: Final = (Page("/", answer),)
