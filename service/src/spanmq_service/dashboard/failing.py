"""Failing messages by their cause, which are retried at once, or rejected."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final, cast

from starlette.responses import Response

from spanmq.model import FailingCause, FailingFilters, hindrance
from spanmq_service.dashboard.formatting import address
from spanmq_service.dashboard.listing import Keys, listing_of
from spanmq_service.dashboard.messages import OLDEST
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.dashboard.queue_state import head_of

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
    "count": (lambda cause: cause.count, True),
    "task": (lambda cause: cause.task or "", False),
    "error": (lambda cause: f"{cause.error_class or ''} {cause.error}", False),
    "attempts": (lambda cause: cause.attempts, True),
    "failed": (lambda cause: cause.last_failed_at or datetime.min.replace(tzinfo=UTC), True),
    "retry": (lambda cause: cause.retry_at, False),
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


async def causes(
    request: PageRequest, queue: str | None = None, *, limit: int = CAUSES
) -> list[FailingCause]:
    """Return what messages fail of that the visitor may look at, in a queue or in the `limit` worst ones."""
    # The worst may be other queues than the visitor's.
    limit = limit if queue or request.may("look", None) else 10 * CAUSES
    return request.seen(await request.backend.client.inspect.failing(queue, limit))


async def answer(request: PageRequest) -> Response:
    """Show the causes of a queue, and the messages of one cause, or of all."""
    head, filters, after = await head_of(request), _filters(request), request.number("after", 0)
    # `order` is the order of the causes.
    is_oldest_first = request.text("messages") == OLDEST
    messages = await request.backend.client.inspect.failing_messages(
        request.queue, after=after, limit=SHOWN + 1, newest_first=not is_oldest_first, **filters
    )
    return show(
        request,
        "failing.html",
        head=head,
        filters=filters,
        causes=(
            listing := listing_of(
                request,
                "/queue/failing",
                await causes(request, request.queue),
                KEYS,
                lambda cause: " ".join(filter(None, (cause.task, cause.error_class, cause.error))),
                queue=head.queue,
            )
        ).rows,
        listing=listing,
        causes_shown=CAUSES if request.text("causes") == "all" else SECTION,
        messages=messages[:SHOWN],
        has_more=len(messages) > SHOWN,
        after=after,
        first=OLDEST if is_oldest_first else "",
        notice=request.notice(NOTICES),
    )


async def ask_retry(request: PageRequest) -> Response:
    """Show how many messages of a cause would be retried now, and the first of them."""
    return await _ask(request, "retry")


async def ask_reject(request: PageRequest) -> Response:
    """Show how many messages of a cause would become dead letters, and the first of them."""
    return await _ask(request, "reject")


async def retry(request: PageRequest) -> Response:
    """Retry the messages of a cause now."""
    await request.form()
    client, filters = request.backend.client, _filters(request)
    request.check_choice(filters)
    n = await _repeat(lambda: client.queues.retry_failing(request.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=request.queue, done="retried", n=n))


async def reject(request: PageRequest) -> Response:
    """Make dead letters of the messages of a cause."""
    await request.form()
    client, filters = request.backend.client, _filters(request)
    request.check_choice(filters)
    n = await _repeat(lambda: client.queues.reject_failing(request.queue, limit=LIMIT, **filters))
    return go(address("/queue/failing", queue=request.queue, done="rejected", n=n))


async def _ask(request: PageRequest, act: str) -> Response:
    queue, filters, client = request.queue, _filters(request), request.backend.client
    request.check_choice(filters)
    # A visitor with the right to manage but not to look is not shown what matches.
    may_look = request.may("look", queue)
    matching = (
        [cause for cause in await causes(request, queue) if _is_meant(cause, filters)] if may_look else []
    )
    messages = await client.inspect.failing_messages(queue, limit=SHOWN, **filters) if may_look else []
    held = hindrance(await client.health.attention([queue])) if may_look and act == "retry" else None
    return show(
        request,
        "failing_act.html",
        queue=queue,
        filters=filters,
        act=act,
        words=ACTS[act],
        may_look=may_look,
        n=sum(cause.count for cause in matching),
        is_exact=all(cause.is_exact for cause in matching),
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


def _filters(request: PageRequest) -> FailingFilters:
    """Return the cause that the URL names; a part that is missing is any, an empty one is none."""
    query = request.http.query_params
    names = [name for name in FailingFilters.__annotations__ if name in query]
    return cast(FailingFilters, {name: request.text(name) for name in names})


PAGES: Final = (
    Page("/queue/failing", answer, of_queue=True),
    Page("/queue/failing/retry", ask_retry, "manage", of_queue=True),
    Page("/queue/failing/reject", ask_reject, "manage", of_queue=True),
    Page("/queue/failing/retry", retry, "manage", of_queue=True, method="POST"),
    Page("/queue/failing/reject", reject, "manage", of_queue=True, method="POST"),
)
