"""The tabs of one queue, and what a person does to it: create, pause, resume, purge, drop it, send a message."""

from typing import Final

from starlette.responses import Response

from spanmq.errors import InvalidArgumentError
from spanmq.model import HeldLease
from spanmq_service.dashboard import form_values
from spanmq_service.dashboard.failing import causes
from spanmq_service.dashboard.figures import SPANS, span_of
from spanmq_service.dashboard.formatting import ROW_BYTES_MAX, address, task_of
from spanmq_service.dashboard.page import Page, go, show, show_form
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.dashboard.queue_state import head_of
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


async def answer(request: PageRequest) -> Response:
    """Show the figures of a queue, and what fails in it."""
    head = await head_of(request)
    return show(
        request,
        "queue.html",
        head=head,
        failing=await causes(request, head.queue),
        failing_shown=CAUSES,
        notice=request.notice(NOTICES),
        span=span_of(request),
        spans=SPANS,
    )


async def receivers(request: PageRequest) -> Response:
    """Show which programs receive from a queue, and what they hold."""
    head, client = await head_of(request), request.backend.client
    queue = head.queue
    leases = await client.inspect.leases(queue, LEASES)
    workers = await client.health.workers(queue)
    return show(
        request,
        "receivers.html",
        head=head,
        leases=[(lease, await _task_of(request, queue, lease)) for lease in leases],
        workers=workers[:SHOWN],
        progress=progress_of(workers)[:SHOWN],
        streams=(await client.admin.receivers.list(queue))[:SHOWN],
        subscriptions=[
            subscription
            for subscription in await client.subscriptions.list(queue)
            if request.may("look", subscription.subscription)
        ][:SHOWN],
        shown=SHOWN,
    )


async def groups(request: PageRequest) -> Response:
    """Show the groups of a queue, and what blocks them."""
    head, client = await head_of(request), request.backend.client
    states = await client.inspect.groups(head.queue, SHOWN)
    policy = await client.queues.policy(head.queue)
    return show(request, "groups.html", head=head, groups=states, is_ordered=policy.ordered, shown=SHOWN)


async def storage(request: PageRequest) -> Response:
    """Show the segments of the log of a queue."""
    head, client = await head_of(request), request.backend.client
    return show(
        request,
        "storage.html",
        head=head,
        extent=await client.subscriptions.replay_extent(head.queue),
        segments=await client.inspect.segments(head.queue, SHOWN),
        shown=SHOWN,
    )


async def _task_of(request: PageRequest, queue: str, lease: HeldLease) -> str | None:
    """Return the task of the first message of a lease, None without one."""
    [*messages] = await request.backend.client.peek(
        queue, 1, after=lease.first_id - 1, body_bytes_max=ROW_BYTES_MAX
    )
    is_first = bool(messages) and messages[0].message_id == lease.first_id
    return task_of(messages[0].body) if is_first else None


async def ask_create(request: PageRequest) -> Response:
    """Show the form of a new queue."""
    return show_form(request, "create.html", fields={})


async def create(request: PageRequest) -> Response:
    """Create a queue, and show it; one that exists stays as it is."""
    fields = await request.form()
    name = fields.get("name", "").strip()
    request.check("manage", name)
    try:
        await request.backend.client.queues.create(name, unlogged=fields.get("kind") == "unlogged")
    except InvalidArgumentError as error:
        return show_form(request, "create.html", error.message, fields=fields)
    if not request.may("look", name):
        return go("/queues/new")
    return go(address("/queue", queue=name, done="created"))


async def ask_drop(request: PageRequest) -> Response:
    """Ask for the name of the queue: a drop cannot be undone."""
    await request.backend.client.queues.policy(request.queue)  # raises unless the queue exists
    return show(request, "drop.html", queue=request.queue, is_wrong=False)


async def drop(request: PageRequest) -> Response:
    """Drop a queue with its messages, if its name was typed."""
    fields = await request.form()
    if fields.get("confirmation", "").strip() != request.queue:
        return show(request, "drop.html", 422, queue=request.queue, is_wrong=True)
    await request.backend.client.queues.drop(request.queue)
    return go(address("/", done="dropped"))


async def pause(request: PageRequest) -> Response:
    """Pause deliveries."""
    await request.form()
    await request.backend.client.queues.pause(request.queue)
    return go(address("/queue", queue=request.queue, done="paused"))


async def resume(request: PageRequest) -> Response:
    """Resume deliveries."""
    await request.form()
    await request.backend.client.queues.resume(request.queue)
    return go(address("/queue", queue=request.queue, done="resumed"))


async def close_breaker(request: PageRequest) -> Response:
    """Close the circuit breakers of the queue's workers."""
    await request.form()
    closed = await request.backend.client.queues.close_breaker(request.queue)
    return go(address("/queue", queue=request.queue, done="closed", n=closed))


async def ask_purge(request: PageRequest) -> Response:
    """Ask for the name of the queue: a purge cannot be undone."""
    await request.backend.client.queues.policy(request.queue)  # raises unless the queue exists
    return show(request, "purge.html", queue=request.queue, is_wrong=False)


async def purge(request: PageRequest) -> Response:
    """Remove all messages, if the name was typed."""
    fields = await request.form()
    if fields.get("confirmation", "").strip() != request.queue:
        return show(request, "purge.html", 422, queue=request.queue, is_wrong=True)
    removed = await request.backend.client.queues.purge(request.queue)
    return go(address("/queue", queue=request.queue, done="purged", n=removed))


async def ask_send(request: PageRequest) -> Response:
    """Show the form of a message."""
    return show_form(request, "send.html", queue=request.queue, fields={})


async def send(request: PageRequest) -> Response:
    """Send one message, and show it."""
    fields = await request.form()
    try:
        message_id = await request.backend.client.send(
            request.queue,
            form_values.body(fields.get("body", "")),
            headers=form_values.json_object(fields.get("headers", ""), "headers"),
            group=fields.get("group", "").strip() or None,
            delay=form_values.number(fields.get("delay", ""), "delay"),
        )
    except InvalidArgumentError as error:
        return show_form(request, "send.html", error.message, queue=request.queue, fields=fields)
    # A caller with the right to send but not to look is only shown that the message was sent.
    if not request.may("look", request.queue):
        return show(request, "sent.html", queue=request.queue, message_id=message_id)
    return go(address("/message", queue=request.queue, id=message_id))


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
