"""The tabs of one queue, and what a person does to it: create, pause, resume, purge, drop it, send a message."""

from typing import Final

from starlette.responses import Response

from spanmq.errors import InvalidArgumentError
from spanmq.model import HeldLease
from spanmq_service.dashboard import typed
from spanmq_service.dashboard.failing import causes
from spanmq_service.dashboard.figures import SPANS, span_of
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.queue_head import head_of
from spanmq_service.dashboard.visit import Visit
from spanmq_service.dashboard.wording import ROW_BYTES_MAX, address, task_of
from spanmq_service.dashboard.workers import progress_of

SHOWN: Final = 25
# Each lease shown costs a look at its first message.
LEASES: Final = 10
CAUSES: Final = 3
# The results of forms; the URL contains the key, not the text.
NOTICES: Final = {
    "created": "Created: messages can be sent.",
    "paused": "Paused: receivers get nothing until you resume the queue.",
    "resumed": "Resumed: receivers get messages again.",
    "closed": "Closed the circuit breakers of {n} workers: they receive again.",
    "purged": "Purged: {n} messages were removed.",
}


async def answer(visit: Visit) -> Response:
    """Show the figures of a queue, and what fails in it."""
    head = await head_of(visit)
    return show(
        visit,
        "queue.html",
        head=head,
        failing=await causes(visit, head.queue),
        failing_shown=CAUSES,
        notice=visit.notice(NOTICES),
        span=span_of(visit),
        spans=SPANS,
    )


async def receivers(visit: Visit) -> Response:
    """Show which programs receive from a queue, and what they hold."""
    head, client = await head_of(visit), visit.backend.client
    queue = head.queue
    leases = await client.inspect.leases(queue, LEASES)
    workers = await client.health.workers(queue)
    return show(
        visit,
        "receivers.html",
        head=head,
        leases=[(each, await _task_of(visit, queue, each)) for each in leases],
        workers=workers[:SHOWN],
        progress=progress_of(workers)[:SHOWN],
        streams=(await client.admin.receivers.list(queue))[:SHOWN],
        subscriptions=[
            each for each in await client.subscriptions.list(queue) if visit.may("look", each.subscription)
        ][:SHOWN],
        shown=SHOWN,
    )


async def groups(visit: Visit) -> Response:
    """Show the groups of a queue, and what blocks them."""
    head, client = await head_of(visit), visit.backend.client
    found = await client.inspect.groups(head.queue, SHOWN)
    policy = await client.queues.policy(head.queue)
    return show(visit, "groups.html", head=head, groups=found, is_ordered=policy.ordered, shown=SHOWN)


async def storage(visit: Visit) -> Response:
    """Show the segments of the log of a queue."""
    head, client = await head_of(visit), visit.backend.client
    return show(
        visit,
        "storage.html",
        head=head,
        extent=await client.subscriptions.replay_extent(head.queue),
        segments=await client.inspect.segments(head.queue, SHOWN),
        shown=SHOWN,
    )


async def _task_of(visit: Visit, queue: str, lease: HeldLease) -> str | None:
    """Return the task of the first message of a lease, None without one."""
    [*found] = await visit.backend.client.peek(
        queue, 1, after=lease.first_id - 1, body_bytes_max=ROW_BYTES_MAX
    )
    is_first = bool(found) and found[0].message_id == lease.first_id
    return task_of(found[0].body) if is_first else None


async def ask_create(visit: Visit) -> Response:
    """Show the form of a new queue."""
    return show_form(visit, "create.html", fields={})


async def create(visit: Visit) -> Response:
    """Create a queue, and show it; one that exists stays as it is."""
    fields = await visit.form()
    name = fields.get("name", "").strip()
    visit.check("manage", name)
    try:
        await visit.backend.client.queues.create(name, unlogged=fields.get("kind") == "unlogged")
    except InvalidArgumentError as error:
        return show_form(visit, "create.html", error.message, fields=fields)
    if not visit.may("look", name):
        return go("/queues/new")
    return go(address("/queue", queue=name, done="created"))


async def ask_drop(visit: Visit) -> Response:
    """Ask for the name of the queue: a drop cannot be undone."""
    await visit.backend.client.queues.policy(visit.queue)  # raises unless the queue exists
    return show(visit, "drop.html", queue=visit.queue, is_wrong=False)


async def drop(visit: Visit) -> Response:
    """Drop a queue with its messages, if its name was typed."""
    fields = await visit.form()
    if fields.get("confirmation", "").strip() != visit.queue:
        return show(visit, "drop.html", 422, queue=visit.queue, is_wrong=True)
    await visit.backend.client.queues.drop(visit.queue)
    return go(address("/", done="dropped"))


async def pause(visit: Visit) -> Response:
    """Pause deliveries."""
    await visit.form()
    await visit.backend.client.queues.pause(visit.queue)
    return go(address("/queue", queue=visit.queue, done="paused"))


async def resume(visit: Visit) -> Response:
    """Resume deliveries."""
    await visit.form()
    await visit.backend.client.queues.resume(visit.queue)
    return go(address("/queue", queue=visit.queue, done="resumed"))


async def close_breaker(visit: Visit) -> Response:
    """Close the circuit breakers of the queue's workers."""
    await visit.form()
    closed = await visit.backend.client.queues.close_breaker(visit.queue)
    return go(address("/queue", queue=visit.queue, done="closed", n=closed))


async def ask_purge(visit: Visit) -> Response:
    """Ask for the name of the queue: a purge cannot be undone."""
    await visit.backend.client.queues.policy(visit.queue)  # raises unless the queue exists
    return show(visit, "purge.html", queue=visit.queue, is_wrong=False)


async def purge(visit: Visit) -> Response:
    """Remove all messages, if the name was typed."""
    fields = await visit.form()
    if fields.get("confirmation", "").strip() != visit.queue:
        return show(visit, "purge.html", 422, queue=visit.queue, is_wrong=True)
    removed = await visit.backend.client.queues.purge(visit.queue)
    return go(address("/queue", queue=visit.queue, done="purged", n=removed))


async def ask_send(visit: Visit) -> Response:
    """Show the form of a message."""
    return show_form(visit, "send.html", queue=visit.queue, fields={})


async def send(visit: Visit) -> Response:
    """Send one message, and show it."""
    fields = await visit.form()
    try:
        message_id = await visit.backend.client.send(
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
    Page("/queues/new", ask_create, "manage"),
    Page("/queues/new", create, "manage", method="POST"),
    Page("/queue", answer, of_queue=True),
    Page("/queue/receivers", receivers, of_queue=True),
    Page("/queue/groups", groups, of_queue=True),
    Page("/queue/storage", storage, of_queue=True),
    Page("/queue/drop", ask_drop, "manage", of_queue=True),
    Page("/queue/drop", drop, "manage", of_queue=True, method="POST"),
    Page("/queue/pause", pause, "manage", of_queue=True, method="POST"),
    Page("/queue/resume", resume, "manage", of_queue=True, method="POST"),
    Page("/queue/close-breaker", close_breaker, "manage", of_queue=True, method="POST"),
    Page("/queue/purge", ask_purge, "manage", of_queue=True),
    Page("/queue/purge", purge, "manage", of_queue=True, method="POST"),
    Page("/queue/send", ask_send, "send", of_queue=True),
    Page("/queue/send", send, "send", of_queue=True, method="POST"),
)
