"""The record of changes, with the role, token or command of each."""

from typing import Final

from starlette.responses import Response

from spanmq.errors import QueueNotFoundError
from spanmq.model import Change
from spanmq_service.dashboard.formatting import text
from spanmq_service.dashboard.listing import Listing, listing_of
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.dashboard.queue_state import QueueHead, head_of

SHOWN: Final = 25
# Pages are filtered by what the visitor may see.
READ: Final = 500


async def answer(request: PageRequest) -> Response:
    """Show the changes of queues that the visitor may look at, the newest first."""
    return await _page(request, None, None)


async def of_queue(request: PageRequest) -> Response:
    """Show those of a queue, which may have been dropped."""
    try:
        head = await head_of(request)
    except QueueNotFoundError:
        return await _page(request, request.queue, None)
    return await _page(request, head.queue, head)


async def _page(request: PageRequest, queue: str | None, head: QueueHead | None) -> Response:
    before = request.number("before", 0) or None
    read = await request.backend.client.inspect.changes(queue, before=before, limit=READ)
    # Changes without a queue, such as those of tokens, need the right to look at all queues.
    path, query = ("/changes", {}) if queue is None else ("/queue/changes", {"queue": queue})
    listing: Listing[Change] = listing_of(
        request,
        path,
        (change for change in read if request.may("look", change.queue)),
        {},
        lambda change: " ".join(
            filter(None, (change.queue, change.action, change.role, change.actor, text(change.details)))
        ),
        **query,
    )
    seen = listing.rows
    last = seen[SHOWN - 1] if len(seen) > SHOWN else read[-1] if len(read) == READ else None
    last_id = None if last is None else last.change_id
    return show(
        request,
        "changes.html",
        queue=queue,
        head=head,
        before=before,
        listing=listing,
        changes=seen[:SHOWN],
        last=last_id,
    )


PAGES: Final = (Page("/changes", answer), Page("/queue/changes", of_queue, of_queue=True))
