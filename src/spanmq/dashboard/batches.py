"""Batches: the number of settled messages of each, and the message that was sent at the end."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from spanmq.dashboard.page import Page, show
from spanmq.dashboard.visit import Visit

SHOWN: Final = 50
# Pages are filtered by what the visitor may see: up to this many are read for one of them.
READ: Final = 500


async def answer(visit: Visit) -> Response:
    """Show the batches that send into queues that the visitor may look at, the newest first."""
    before = visit.number("before", 0) or None
    read = await visit.behind.client.batches.list(before=before, quantity=READ)
    batches = [each for each in read if visit.may("look", each.queue)]
    last = batches[SHOWN - 1] if len(batches) > SHOWN else read[-1] if len(read) == READ else None
    return show(
        visit, "batches.html", before=before, batches=batches[:SHOWN], last=last.batch_id if last else None
    )


PAGES: Final = (Page("/batches", answer),)
