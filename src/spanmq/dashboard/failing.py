"""What is failing now: the messages of a cause, which are retried at once, or rejected."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response

from spanmq.dashboard.page import Page, go, show
from spanmq.dashboard.queue_head import head_of
from spanmq.dashboard.visit import Visit
from spanmq.dashboard.wording import address
from spanmq.model import FailingCause, FailingFilters

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


async def causes(visit: Visit, queue: str | None = None, *, limit: int = CAUSES) -> list[FailingCause]:
    """Return what messages fail of that the visitor may look at, in a queue or in the `limit` worst ones."""
    # The worst may be other queues than the visitor's.
    limit = limit if queue or visit.may("look", None) else 10 * CAUSES
    return visit.seen(await visit.backend.client.inspect.failing(queue, limit))


async def answer(visit: Visit) -> Response:
    """Show the causes of a queue, and the messages of one cause, or of all."""
    head, filters, after = await head_of(visit), _filters(visit), visit.number("after", 0)
    messages = await visit.backend.client.inspect.failing_messages(
        visit.queue, after=after, limit=SHOWN + 1, **filters
    )
    return show(
        visit,
        "failing.html",
        head=head,
        given=filters,
        causes=await causes(visit, visit.queue),
        causes_shown=CAUSES if visit.text("causes") == "all" else SECTION,
        messages=messages[:SHOWN],
        has_more=len(messages) > SHOWN,
        after=after,
        notice=visit.notice(NOTICES),
    )


async def retry(visit: Visit) -> Response:
    """Retry the messages of a cause now."""
    await visit.form()
    client, filters = visit.backend.client, _filters(visit)
    n = await _repeat(lambda: client.dead_letters.retry_failing(visit.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=visit.queue, done="retried", n=n))


async def reject(visit: Visit) -> Response:
    """Make dead letters of the messages of a cause."""
    await visit.form()
    client, filters = visit.backend.client, _filters(visit)
    n = await _repeat(lambda: client.dead_letters.reject_failing(visit.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=visit.queue, done="rejected", n=n))


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
    Page("/queue/failing/retry", retry, "manage", of_queue=True, method="POST"),
    Page("/queue/failing/reject", reject, "manage", of_queue=True, method="POST"),
)
