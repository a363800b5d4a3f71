"""Failing messages by their cause, which are retried at once, or rejected."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from spanmq.model import FailingCause, FailingFilters, hindrance
from spanmq_service.dashboard.listing import Keys, listing_of
from spanmq_service.dashboard.messages import OLDEST
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.queue_head import head_of
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import address

# Causes in a section of another page; this page shows more.
SECTION: Final = 5
CAUSES: Final = 100
SHOWN: Final = 12
# A form acts on up to CALLS times LIMIT messages.
LIMIT: Final = 1_000
CALLS: Final = 10
NOTICES: Final = {
    "retried": "Retried: {n} messages are visible now.",
    "rejected": "Rejected: {n} messages are dead letters now.",
}


KEYS: Final[Keys[FailingCause]] = {
    "count": (lambda each: each.count, True),
    "task": (lambda each: each.task or "", False),
    "error": (lambda each: f"{each.error_class or ''} {each.error}", False),
    "attempts": (lambda each: each.attempts, True),
    "failed": (lambda each: each.last_failed_at or datetime.min.replace(tzinfo=UTC), True),
    "retry": (lambda each: each.retry_at, False),
}
# For each act: its title, its button, and what becomes of the messages.
ACTS: Final = {
    "retry": (
        "Retry failing messages now",
        "Retry {} now",
        "become visible at once; their attempts stay as they are",
    ),
    "reject": ("Reject failing messages", "Reject {}", "become dead letters, which can be redriven"),
}


async def causes(visit: Visit, queue: str | None = None, *, limit: int = CAUSES) -> list[FailingCause]:
    """Return what messages fail of that the visitor may look at, in a queue or in the `limit` worst ones."""
    # The worst may be other queues than the visitor's.
    limit = limit if queue or visit.may("look", None) else 10 * CAUSES
    return visit.seen(await visit.backend.client.inspect.failing(queue, limit))


async def answer(visit: Visit) -> Response:
    """Show the causes of a queue, and the messages of one cause, or of all."""
    head, filters, after = await head_of(visit), _filters(visit), visit.number("after", 0)
    # `order` is the order of the causes.
    is_oldest_first = visit.text("messages") == OLDEST
    messages = await visit.backend.client.inspect.failing_messages(
        visit.queue, after=after, limit=SHOWN + 1, newest_first=not is_oldest_first, **filters
    )
    return show(
        visit,
        "failing.html",
        head=head,
        given=filters,
        causes=(
            listing := listing_of(
                visit,
                "/queue/failing",
                await causes(visit, visit.queue),
                KEYS,
                lambda each: " ".join(filter(None, (each.task, each.error_class, each.error))),
                queue=head.queue,
            )
        ).rows,
        listing=listing,
        causes_shown=CAUSES if visit.text("causes") == "all" else SECTION,
        messages=messages[:SHOWN],
        has_more=len(messages) > SHOWN,
        after=after,
        first=OLDEST if is_oldest_first else "",
        notice=visit.notice(NOTICES),
    )


async def ask_retry(visit: Visit) -> Response:
    """Show how many messages of a cause would be retried now, and the first of them."""
    return await _ask(visit, "retry")


async def ask_reject(visit: Visit) -> Response:
    """Show how many messages of a cause would become dead letters, and the first of them."""
    return await _ask(visit, "reject")


async def retry(visit: Visit) -> Response:
    """Retry the messages of a cause now."""
    await visit.form()
    client, filters = visit.backend.client, _filters(visit)
    visit.check_choice(filters)
    n = await _repeat(lambda: client.queues.retry_failing(visit.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=visit.queue, done="retried", n=n))


async def reject(visit: Visit) -> Response:
    """Make dead letters of the messages of a cause."""
    await visit.form()
    client, filters = visit.backend.client, _filters(visit)
    visit.check_choice(filters)
    n = await _repeat(lambda: client.queues.reject_failing(visit.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=visit.queue, done="rejected", n=n))


async def _ask(visit: Visit, act: str) -> Response:
    queue, filters, client = visit.queue, _filters(visit), visit.backend.client
    visit.check_choice(filters)
    # A visitor with the right to manage but not to look is not shown what matches.
    may_look = visit.may("look", queue)
    matching = [each for each in await causes(visit, queue) if _is_meant(each, filters)] if may_look else []
    messages = await client.inspect.failing_messages(queue, limit=SHOWN, **filters) if may_look else []
    held = hindrance(await client.health.attention([queue])) if may_look and act == "retry" else None
    return show(
        visit,
        "failing_act.html",
        queue=queue,
        given=filters,
        act=act,
        words=ACTS[act],
        may_look=may_look,
        n=sum(each.count for each in matching),
        is_exact=all(each.is_exact for each in matching),
        most=LIMIT * CALLS,
        messages=messages,
        held=held,
    )


def _is_meant(cause: FailingCause, filters: FailingFilters) -> bool:
    values = {
        "task": cause.task,
        "category": cause.category,
        "error_class": cause.error_class,
        "error": cause.error,
    }
    return all((values[name] or "") == value for name, value in filters.items())


async def _repeat(act: Callable[[], Awaitable[int]]) -> int:
    total = 0
    for _ in range(CALLS):
        total += (n := await act())
        if n < LIMIT:
            break
    return total


def _filters(visit: Visit) -> FailingFilters:
    """Return the cause that the URL names; a part that is missing is any, an empty one is none."""
    query = visit.request.query_params
    filters: FailingFilters = {}
    if "task" in query:
        filters["task"] = visit.text("task")
    if "category" in query:
        filters["category"] = visit.text("category")
    if "error_class" in query:
        filters["error_class"] = visit.text("error_class")
    if "error" in query:
        filters["error"] = visit.text("error")
    return filters


PAGES: Final = (
    Page("/queue/failing", answer, of_queue=True),
    Page("/queue/failing/retry", ask_retry, "manage", of_queue=True),
    Page("/queue/failing/reject", ask_reject, "manage", of_queue=True),
    Page("/queue/failing/retry", retry, "manage", of_queue=True, method="POST"),
    Page("/queue/failing/reject", reject, "manage", of_queue=True, method="POST"),
)
