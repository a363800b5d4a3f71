"""The page of one queue: its messages, workers, blocked groups, storage and policy."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from starlette.responses import Response

from spanmq.dashboard.figures import SPANS, span_of
from spanmq.dashboard.page import Page, show
from spanmq.dashboard.standing import standing_of
from spanmq.dashboard.visit import Visit
from spanmq.dashboard.wording import ROW_BYTES_MAX
from spanmq.errors import QueueNotFoundError

MESSAGES: Final = 20
SHOWN: Final = 50
# The results of forms; the URL contains the key, not the text.
NOTICES: Final = {
    "paused": "Paused: receivers get nothing until you resume the queue.",
    "resumed": "Resumed: receivers get messages again.",
    "purged": "Purged: {n} messages were removed.",
}


async def answer(visit: Visit) -> Response:
    """Show a queue."""
    name, after, client = visit.queue, visit.number("after", 0), visit.behind.client
    found = await standing_of(visit.behind, [name])
    if not found:
        raise QueueNotFoundError(f"queue {name!r} does not exist", queue=name)
    queue = found[0].queue
    messages = await client.peek(queue, MESSAGES + 1, after=after, body_bytes_max=ROW_BYTES_MAX)
    return show(
        visit,
        "queue.html",
        queue=queue,
        standing=found[0],
        after=after,
        messages=messages[:MESSAGES],
        has_more=len(messages) > MESSAGES,
        leases=await client.inspect.leases(queue, SHOWN),
        groups=await client.inspect.groups(queue, SHOWN),
        receivers=(await client.admin.receivers.list(queue))[:SHOWN],
        subscriptions=[
            each for each in await client.subscriptions.list(queue) if visit.may("look", each.subscription)
        ],
        dead=await client.dead_letters.count(queue),
        extent=await client.subscriptions.replay_extent(queue),
        segments=await client.inspect.segments(queue, SHOWN),
        schema=await client.queues.schema(queue),
        policy=asdict(await client.queues.policy(queue)),
        notice=visit.notice(NOTICES),
        span=span_of(visit),
        spans=SPANS,
        shown=SHOWN,
    )


PAGES: Final = (Page("/queue", answer, of_queue=True),)
