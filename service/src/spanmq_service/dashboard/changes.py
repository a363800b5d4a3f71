"""The record of changes, with the role, token or command of each."""

from typing import Final

from starlette.responses import Response

from spanmq.errors import QueueNotFoundError
from spanmq.model import Change
from spanmq_service.dashboard.listing import Listing, listing_of
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.queue_head import QueueHead, head_of
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import text

SHOWN: Final = 25
# Pages are filtered by what the visitor may see.
READ: Final = 500


async def answer(visit: Visit) -> Response:
    """Show the changes of queues that the visitor may look at, the newest first."""
    return await _page(visit, None, None)


async def of_queue(visit: Visit) -> Response:
    """Show those of a queue, which may have been dropped."""
    try:
        head = await head_of(visit)
    except QueueNotFoundError:
        return await _page(visit, visit.queue, None)
    return await _page(visit, head.queue, head)


async def _page(visit: Visit, queue: str | None, head: QueueHead | None) -> Response:
    before = visit.number("before", 0) or None
    read = await visit.backend.client.inspect.changes(queue, before=before, limit=READ)
    # Changes without a queue, such as those of tokens, need the right to look at all queues.
    path, query = ("/changes", {}) if queue is None else ("/queue/changes", {"queue": queue})
    listing: Listing[Change] = listing_of(
        visit,
        path,
        (each for each in read if visit.may("look", each.queue)),
        {},
        lambda each: " ".join(
            filter(None, (each.queue, each.action, each.role, each.actor, text(each.details)))
        ),
        **query,
    )
    seen = listing.rows
    last = seen[SHOWN - 1] if len(seen) > SHOWN else read[-1] if len(read) == READ else None
    last_id = None if last is None else last.change_id
    return show(
        visit,
        "changes.html",
        queue=queue,
        head=head,
        before=before,
        listing=listing,
        changes=seen[:SHOWN],
        last=last_id,
    )


PAGES: Final = (Page("/changes", answer), Page("/queue/changes", of_queue, of_queue=True))
