"""The page of one message: its state, its failures, and its dead letters."""

from typing import Final

from starlette.responses import Response

from spanmq.dashboard.page import Page, go, show
from spanmq.dashboard.visit import RefusedError, Visit
from spanmq.dashboard.wording import PAGE_BYTES_MAX, address
from spanmq.errors import NotFoundError, QueueNotFoundError
from spanmq.model import Message

MEANINGS: Final = {
    "pending": "It can be received.",
    "processing": "It is leased by a receiver.",
    "delayed": "It is hidden until its time.",
    "failed": "It failed, and is retried after its backoff.",
    "dead": "The message is a dead letter. It can be redriven or discarded.",
    "completed": "It was acked, archived or deleted.",
    "unknown": "It was never sent, or was purged, or completed long ago.",
}
NOTICES: Final = {
    "cancelled": "Cancelled: it was removed from the queue.",
    "cancelling": "A receiver holds the message: its handler is told to end. Then the message ends, too.",
    "shown": "The message is visible now.",
    "redriven": "Redriven: the message is in the queue again, hidden for the delay of the queue's policy.",
    "discarded": "Discarded: the dead letter was deleted.",
    "late": "Nothing was changed: the message is leased, or it has left the queue, or is not a dead letter any more.",
}


async def answer(visit: Visit) -> Response:
    """Show a message by its id."""
    queue, message_id = visit.queue, visit.number("id", -1)
    if message_id < 0:
        raise RefusedError(400, "Which message?", "The address names no message.")
    client = visit.backend.client
    state = await client.inspect.state(queue, message_id)
    before = max(message_id - 1, 0)
    waiting = await client.peek(queue, 1, after=before, body_bytes_max=PAGE_BYTES_MAX)
    archived = await client.inspect.archive(queue, 1, after=before, body_bytes_max=PAGE_BYTES_MAX)
    return show(
        visit,
        "message.html",
        queue=queue,
        message_id=message_id,
        state=state,
        meaning=MEANINGS[state],
        message=_of(message_id, [*waiting, *archived]),
        failures=await client.inspect.failures(queue, message_id),
        notice=NOTICES.get(visit.text("done")),
        deaths=await client.dead_letters.show(queue, message_id, body_bytes_max=PAGE_BYTES_MAX),
    )


async def cancel(visit: Visit) -> Response:
    """Remove a message that no receiver holds."""
    await visit.form()
    message_id = visit.number("id", -1)
    [cancelled] = await visit.backend.client.cancel(visit.queue, message_id)
    done = "late" if cancelled.outcome == "unknown" else cancelled.outcome
    return go(address("/message", queue=visit.queue, id=message_id, done=done))


async def deliver(visit: Visit) -> Response:
    """Make a hidden message visible, if no receiver holds it."""
    await visit.form()
    message_id, client = visit.number("id", -1), visit.backend.client
    is_hidden = await client.inspect.state(visit.queue, message_id) in ("delayed", "failed")
    if is_hidden:
        await client.set_vt(visit.queue, message_id, 0)
    done = "shown" if is_hidden else "late"
    return go(address("/message", queue=visit.queue, id=message_id, done=done))


async def redrive(visit: Visit) -> Response:
    """Return the dead letter to the queue as it is."""
    await visit.form()
    message_id = visit.number("id", -1)
    try:
        await visit.backend.client.dead_letters.edit(visit.queue, message_id)
        done = "redriven"
    except QueueNotFoundError:
        raise
    except NotFoundError:
        done = "late"
    return go(address("/message", queue=visit.queue, id=message_id, done=done))


async def discard(visit: Visit) -> Response:
    """Delete the dead letter that the URL names."""
    await visit.form()
    letter_ids = [visit.number("letter", -1)]
    removed = await visit.backend.client.dead_letters.discard(visit.queue, dead_letter_ids=letter_ids)
    done = "discarded" if removed else "late"
    return go(address("/message", queue=visit.queue, id=visit.number("id", -1), done=done))


def _of(message_id: int, found: list[Message]) -> Message | None:
    return next((each for each in found if each.message_id == message_id), None)


PAGES: Final = (
    Page("/message", answer, of_queue=True),
    Page("/message/cancel", cancel, "manage", of_queue=True, method="POST"),
    Page("/message/redrive", redrive, "manage", of_queue=True, method="POST"),
    Page("/message/discard", discard, "manage", of_queue=True, method="POST"),
    Page("/message/deliver", deliver, "manage", of_queue=True, method="POST"),
)
