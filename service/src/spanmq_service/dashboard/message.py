"""The page of one message: its state, its failures, and its dead letters. What ends or returns it has its preview."""

from typing import Final

from starlette.responses import Response

from spanmq.model import Message
from spanmq_service.dashboard.formatting import PAGE_BYTES_MAX, address
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.page_request import PageRequest, RefusedError

MEANINGS: Final = {
    "pending": "It is not hidden.",
    "processing": "It is leased by a receiver.",
    "delayed": "It is hidden until its time.",
    "failed": "It failed, and is retried after its backoff.",
    "dead": "The message is a dead letter. It can be redriven or discarded.",
    "completed": "It was acked, archived or deleted.",
    "cancelled": "It was cancelled.",
    "expired": "It expired before it was handled, and was dropped as the policy says.",
    "discarded": "It was a dead letter, and was discarded.",
    "unknown": "It was never sent, or was purged, or ended long ago.",
}
# The states of messages that are not in the queue. Their meaning, or a section of the page, says what explain() does.
ENDED: Final = ("dead", "completed", "cancelled", "expired", "discarded")
NOTICES: Final = {
    "shown": "The message is visible now.",
    "late": "Nothing was changed: the message is leased, or it has left the queue.",
}


async def answer(request: PageRequest) -> Response:
    """Show a message by its id."""
    queue, message_id = request.queue, request.number("id", -1)
    if message_id < 0:
        raise RefusedError(400, "Which message?", "The URL has no id of a message.")
    client = request.backend.client
    state = await client.inspect.state(queue, message_id)
    reasons = await client.inspect.explain(queue, message_id)
    if state in ENDED:
        reasons = [reason for reason in reasons if reason.code == "waits"]
    before = max(message_id - 1, 0)
    waiting = await client.peek(queue, 1, after=before, body_bytes_max=PAGE_BYTES_MAX)
    archived = await client.inspect.archive(queue, 1, after=before, body_bytes_max=PAGE_BYTES_MAX)
    return show(
        request,
        "message.html",
        queue=queue,
        message_id=message_id,
        state=state,
        meaning=MEANINGS[state],
        reasons=reasons,
        message=_of(message_id, [*waiting, *archived]),
        failures=await client.inspect.failures(queue, message_id),
        notice=NOTICES.get(request.text("done")),
        deaths=await client.dead_letters.show(queue, message_id, body_bytes_max=PAGE_BYTES_MAX),
    )


async def deliver(request: PageRequest) -> Response:
    """Make a hidden message visible, if no receiver holds it."""
    await request.form()
    message_id, client = request.number("id", -1), request.backend.client
    is_hidden = await client.inspect.state(request.queue, message_id) in ("delayed", "failed")
    if is_hidden:
        await client.set_vt(request.queue, message_id, 0)
    done = "shown" if is_hidden else "late"
    return go(address("/message", queue=request.queue, id=message_id, done=done))


def _of(message_id: int, messages: list[Message]) -> Message | None:
    return next((message for message in messages if message.message_id == message_id), None)


PAGES: Final = (
    Page("/message", answer, of_queue=True),
    Page("/message/deliver", deliver, "manage", of_queue=True, method="POST"),
)
