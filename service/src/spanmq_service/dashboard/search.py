"""The search for messages in all queues: by id, or by a text of their body, headers, group, task or error."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from time import monotonic
from typing import Final

from starlette.responses import Response

from spanmq.errors import QueueNotFoundError
from spanmq.model import DeadLetter, Message
from spanmq_service.dashboard.formatting import ROW_BYTES_MAX, task_of, text
from spanmq_service.dashboard.messages import CHUNK, failing_among, row_of
from spanmq_service.dashboard.page import Page, show
from spanmq_service.dashboard.page_request import PageRequest
from spanmq_service.dashboard.queue_state import QueueState, queue_states

# A page ends after SHOWN messages or SECONDS, and shows OF_EACH of a queue; the next one goes on with the next queue.
SHOWN: Final = 100
OF_EACH: Final = 10
SECONDS: Final = 5.0
# Queues that are searched at once.
AT_ONCE: Final = 4
# For a text: the newest messages that are read of each queue; of its dead letters and of its archive, CHUNK.
SCANNED: Final = 1_000
ID_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found; `sent_at` and `body` are None where only its state is known."""

    queue: str
    message_id: int
    state: str
    sent_at: datetime | None = None
    group: str | None = None
    error: str = ""
    body: object = None
    headers: object = None

    @property
    def task(self) -> str | None:
        """Return the task that the message is for."""
        return task_of(self.body)

    def has(self, sought: str) -> bool:
        """Return whether the body, the headers, the group or the error contains a text, without regard to case."""
        parts = (text(self.body), text(self.headers) if self.headers else "", self.group or "", self.error)
        return any(sought in part.lower() for part in parts)


async def answer(request: PageRequest) -> Response:
    """Show the messages that match, of queues that the visitor may look at, by the names of these queues."""
    sought, after = request.text("find").strip(), request.text("after")
    queues = sorted(request.seen(await queue_states(request.backend)), key=lambda queue: queue.queue)
    queues = [queue for queue in queues if queue.queue > after]
    hits, fuller, n_searched, until = list[Hit](), list[str](), 0, monotonic() + SECONDS
    while sought and n_searched < len(queues) and len(hits) < SHOWN and monotonic() < until:
        part = queues[n_searched : n_searched + AT_ONCE]
        hits_of_queues = await asyncio.gather(*[_search(request, queue, sought, until) for queue in part])
        for queue, of_queue in zip(part, hits_of_queues, strict=True):
            hits += of_queue[:OF_EACH]
            fuller += [queue.queue] if len(of_queue) > OF_EACH else []
        n_searched += len(part)
    left = len(queues) - n_searched
    return show(
        request,
        "search.html",
        find=sought,
        hits=hits,
        of_each=OF_EACH,
        fuller=fuller,
        after=after,
        n_searched=n_searched,
        n_left=left if sought else 0,
        last=queues[n_searched - 1].queue if n_searched else "",
        scanned=SCANNED,
        chunk=CHUNK,
    )


async def _search(request: PageRequest, queue: QueueState, sought: str, until: float) -> list[Hit]:
    """Return the messages of a queue that match: that with this id first, then the newest first."""
    hits: dict[int, Hit] = {}
    # A queue that is dropped meanwhile has none.
    with suppress(QueueNotFoundError):
        if sought.isdecimal() and sought.isascii() and int(sought) <= min(queue.sent_total, ID_MAX):
            for hit in await _by_id(request, queue.queue, int(sought)):
                hits.setdefault(hit.message_id, hit)
        for hit in await _by_text(request, queue.queue, sought.lower(), until):
            hits.setdefault(hit.message_id, hit)
    return [*hits.values()]


async def _by_id(request: PageRequest, queue: str, message_id: int) -> list[Hit]:
    client = request.backend.client
    state = await client.inspect.state(queue, message_id)
    if state == "unknown":
        return []
    before = max(message_id - 1, 0)
    messages = await client.peek(queue, 1, after=before, body_bytes_max=ROW_BYTES_MAX)
    hits = [hit for hit in await _unsettled(request, queue, messages) if hit.message_id == message_id]
    if not hits and state == "dead":
        letters = await client.dead_letters.show(queue, message_id, body_bytes_max=ROW_BYTES_MAX)
        hits = [_dead(queue, letter) for letter in letters[-1:]]
    elif not hits:
        archived = await client.inspect.archive(queue, 1, after=before, body_bytes_max=ROW_BYTES_MAX)
        hits = [_done(queue, message) for message in archived if message.message_id == message_id]
    return hits or [Hit(queue, message_id, state)]


async def _by_text(request: PageRequest, queue: str, sought: str, until: float) -> list[Hit]:
    client, limit = request.backend.client, CHUNK
    hits = list[Hit]()
    after, n_read = 0, 0
    while n_read < SCANNED and monotonic() < until:
        messages = await client.peek(
            queue, limit, after=after, body_bytes_max=ROW_BYTES_MAX, newest_first=True
        )
        hits += await _unsettled(request, queue, messages)
        n_read += limit
        if len(messages) < limit:
            break
        after = messages[-1].message_id
    if monotonic() < until:
        letters = await client.dead_letters.list(
            queue, limit=limit, body_bytes_max=ROW_BYTES_MAX, newest_first=True
        )
        hits += [_dead(queue, letter) for letter in letters]
    if monotonic() < until:
        archived = await client.inspect.archive(queue, limit, body_bytes_max=ROW_BYTES_MAX, newest_first=True)
        hits += [_done(queue, message) for message in archived]
    return [hit for hit in hits if hit.has(sought)]


async def _unsettled(request: PageRequest, queue: str, messages: Sequence[Message]) -> list[Hit]:
    failing = await failing_among(request, queue, messages)
    rows = [row_of(message, failing.get(message.message_id)) for message in messages]
    return [_hit(queue, row.message, row.state, row.error) for row in rows]


def _done(queue: str, message: Message) -> Hit:
    return _hit(queue, message, "completed")


def _dead(queue: str, letter: DeadLetter) -> Hit:
    return _hit(queue, letter, "dead", " ".join(filter(None, (letter.error_class, letter.error))))


def _hit(queue: str, message: Message | DeadLetter, state: str, error: str = "") -> Hit:
    return Hit(
        queue,
        message.message_id,
        state,
        message.enqueued_at,
        message.group,
        error,
        message.body,
        message.headers,
    )


PAGES: Final = (Page("/search", answer),)
