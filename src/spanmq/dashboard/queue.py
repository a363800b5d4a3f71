"""The page of one queue, and what a person does to it: pause, resume, purge, send a message."""

from dataclasses import asdict
from typing import Final

from starlette.responses import Response

from spanmq.dashboard import typed
from spanmq.dashboard.failing import SECTION, causes
from spanmq.dashboard.figures import SPANS, span_of
from spanmq.dashboard.page import Page, go, show, show_form
from spanmq.dashboard.queues import standing_of
from spanmq.dashboard.visit import Visit
from spanmq.dashboard.wording import ROW_BYTES_MAX, address
from spanmq.errors import InvalidArgumentError, QueueNotFoundError

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
        failing=await causes(visit, queue),
        failing_shown=SECTION,
        extent=await client.subscriptions.replay_extent(queue),
        segments=await client.inspect.segments(queue, SHOWN),
        schema=await client.queues.schema(queue),
        policy=asdict(await client.queues.policy(queue)),
        notice=visit.notice(NOTICES),
        span=span_of(visit),
        spans=SPANS,
        shown=SHOWN,
    )


async def pause(visit: Visit) -> Response:
    """Pause deliveries."""
    await visit.form()
    await visit.behind.client.queues.pause(visit.queue)
    return go(address("/queue", queue=visit.queue, done="paused"))


async def resume(visit: Visit) -> Response:
    """Resume deliveries."""
    await visit.form()
    await visit.behind.client.queues.resume(visit.queue)
    return go(address("/queue", queue=visit.queue, done="resumed"))


async def ask_purge(visit: Visit) -> Response:
    """Ask for the name of the queue: a purge cannot be undone."""
    await visit.behind.client.queues.policy(visit.queue)  # raises unless the queue exists
    return show(visit, "purge.html", queue=visit.queue, is_wrong=False)


async def purge(visit: Visit) -> Response:
    """Remove all messages, if the name was typed."""
    fields = await visit.form()
    if fields.get("confirmation", "").strip() != visit.queue:
        return show(visit, "purge.html", 422, queue=visit.queue, is_wrong=True)
    removed = await visit.behind.client.queues.purge(visit.queue)
    return go(address("/queue", queue=visit.queue, done="purged", n=removed))


async def ask_send(visit: Visit) -> Response:
    """Show the form of a message."""
    return show_form(visit, "send.html", queue=visit.queue, fields={})


async def send(visit: Visit) -> Response:
    """Send one message, and show it."""
    fields = await visit.form()
    try:
        message_id = await visit.behind.client.send(
            visit.queue,
            typed.body(fields.get("body", "")),
            headers=typed.json_object(fields.get("headers", ""), "headers"),
            group=fields.get("group", "").strip() or None,
            delay=typed.number(fields.get("delay", ""), "delay"),
        )
    except InvalidArgumentError as error:
        return show_form(visit, "send.html", error.message, queue=visit.queue, fields=fields)
    # A caller with the right to send but not to look is only shown that the message was sent.
    if not visit.may("look", visit.queue):
        return show(visit, "sent.html", queue=visit.queue, message_id=message_id)
    return go(address("/message", queue=visit.queue, id=message_id))


PAGES: Final = (
    Page("/queue", answer, of_queue=True),
    Page("/queue/pause", pause, "manage", of_queue=True, method="POST"),
    Page("/queue/resume", resume, "manage", of_queue=True, method="POST"),
    Page("/queue/purge", ask_purge, "manage", of_queue=True),
    Page("/queue/purge", purge, "manage", of_queue=True, method="POST"),
    Page("/queue/send", ask_send, "send", of_queue=True),
    Page("/queue/send", send, "send", of_queue=True, method="POST"),
)
