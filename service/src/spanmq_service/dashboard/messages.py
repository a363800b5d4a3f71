"""The messages of a queue by state: found by body, group or error, and selected for an act after a preview."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from starlette.responses import Response

from spanmq.model import FailingMessage, Message
from spanmq_service.dashboard.formatting import ROW_BYTES_MAX, address, task_of, text
from spanmq_service.dashboard.page import Page, go, show
from spanmq_service.dashboard.page_request import PageRequest, RefusedError
from spanmq_service.dashboard.queue_state import head_of

SHOWN: Final = 15
# A search reads up to SCANNED messages for a page, CHUNK in a call; the next page goes on from there.
SCANNED: Final = 2_000
CHUNK: Final = 500
SELECTED_MAX: Final = 100
# The order of a list in which the newest does not come first.
OLDEST: Final = "oldest"
STATES: Final = ("", "pending", "processing", "delayed", "failed", "done")
# For each act: its button, what it does, and the states of the messages that it changes.
ACTS: Final = {
    "retry": ("Retry now", "would become visible now", ("failed", "delayed")),
    "cancel": (
        "Cancel messages",
        "would be cancelled; the handler of one that is being processed would be told to end",
        ("pending", "delayed", "failed", "processing"),
    ),
    "reject": ("Reject", "would become dead letters, which can be redriven", ("failed",)),
    "delete": (
        "Delete",
        "would be deleted for good, also those that a receiver holds",
        ("pending", "delayed", "failed", "processing"),
    ),
}
NOTICES: Final = {
    "retry": "Retried: {n} messages are visible now.",
    "cancel": "Cancelled: {n} messages.",
    "reject": "Rejected: {n} messages are dead letters now.",
    "delete": "Deleted: {n} messages.",
}


@dataclass(frozen=True, slots=True)
class Search:
    """The filters of a search; an empty value matches all messages."""

    state: str
    find: str
    group: str
    error: str
    order: str = ""

    @property
    def newest_first(self) -> bool:
        """Return whether the newest message comes first, as it does unless the URL says otherwise."""
        return self.order != OLDEST

    def matches(self, row: "Row") -> bool:
        """Return whether a message is meant."""
        return (
            self.state in ("", row.state)
            and self.find.lower() in text(row.message.body).lower()
            and self.group in ("", row.message.group)
            and self.error.lower() in row.error.lower()
        )

    @property
    def is_any(self) -> bool:
        """Return whether it matches all messages, or all that are done."""
        return self.state in ("", "done") and not (self.find or self.group or self.error)

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of the URL."""
        return {
            "state": self.state,
            "find": self.find,
            "group": self.group,
            "error": self.error,
            "order": self.order,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A message, its state, its last error ("" without one), and its task, None without one."""

    message: Message
    state: str
    error: str

    @property
    def task(self) -> str | None:
        """Return the task that the message is for."""
        return task_of(self.message.body)


@dataclass(frozen=True, slots=True)
class SearchPage:
    """The messages of a page; `read` messages were searched, and the next page begins after `last_id`, if any."""

    rows: list[Row]
    read: int
    last_id: int | None


async def answer(request: PageRequest) -> Response:
    """Show the messages of a queue that match."""
    head, client = await head_of(request), request.backend.client
    search = Search(*(request.text(name).strip() for name in ("state", "find", "group", "error", "order")))
    if search.state not in STATES:
        raise RefusedError(400, "No such state", f"States are {', '.join(filter(None, STATES))}.")
    after = request.number("after", 0)
    policy = await client.queues.policy(head.queue)
    return show(
        request,
        "messages.html",
        head=head,
        search=search,
        after=after,
        shown=SHOWN,
        results=await _search(request, head.queue, search, after),
        has_archive=policy.archive_on_ack
        or bool(await client.inspect.archive(head.queue, 1, body_bytes_max=0)),
        acts={name: ACTS[name][0] for name in ("retry", "cancel", "delete")},
        notice=request.notice(NOTICES),
    )


async def _search(request: PageRequest, queue: str, search: Search, after: int) -> SearchPage:
    client, rows, read = request.backend.client, list[Row](), 0
    reader = client.inspect.archive if search.state == "done" else client.peek
    limit = SHOWN + 1 if search.is_any else CHUNK
    while read < SCANNED:
        chunk = await reader(
            queue, limit, after=after, body_bytes_max=ROW_BYTES_MAX, newest_first=search.newest_first
        )
        failing = {} if search.state == "done" else await failing_among(request, queue, chunk)
        for message in chunk:
            row = row_of(message, failing.get(message.message_id), is_done=search.state == "done")
            if search.matches(row):
                if len(rows) == SHOWN:
                    return SearchPage(rows, read, after)
                rows.append(row)
            read += 1
            after = message.message_id
        if len(chunk) < limit:
            return SearchPage(rows, read, None)
    return SearchPage(rows, read, after)


async def failing_among(
    request: PageRequest, queue: str, chunk: Sequence[Message]
) -> dict[int, FailingMessage]:
    """Return those of successive messages that wait for another attempt, by id."""
    tried = [message.message_id for message in chunk if message.attempt]
    if not tried:
        return {}
    # Failing ones are among those with attempts: so there are at most as many up to the last of these.
    failing = await request.backend.client.inspect.failing_messages(
        queue, after=min(tried) - 1, limit=len(tried)
    )
    return {failure.message_id: failure for failure in failing}


def row_of(message: Message, failure: FailingMessage | None, *, is_done: bool = False) -> Row:
    """Return a message as a row, with its failure, if it waits for another attempt."""
    if is_done:
        return Row(message, "done", "")
    error = "" if failure is None else " ".join(filter(None, (failure.error_class, failure.error)))
    if message.leased_until <= datetime.now(UTC):
        return Row(message, "pending", error)
    if failure is not None:
        return Row(message, "failed", error)
    return Row(message, "processing" if message.attempt else "delayed", "")


async def ask(request: PageRequest) -> Response:
    """Show how many of the selected messages an act changes."""
    act, ids = request.text("act"), _ids(request.http.query_params.getlist("id"))
    _check(act)
    states: dict[str, int] = {}
    if request.may("look", request.queue):
        states = Counter(
            [await request.backend.client.inspect.state(request.queue, message_id) for message_id in ids]
        )
    button, words, changed = ACTS[act]
    return show(
        request,
        "selected.html",
        queue=request.queue,
        act=act,
        ids=ids,
        states=states,
        n=sum(states.get(state, 0) for state in changed) if states else len(ids),
        button=button,
        words=words,
    )


async def do(request: PageRequest) -> Response:
    """Do it to the messages of the preview; those that have changed meanwhile are left alone."""
    fields = await request.form()
    act, ids, queue, client = (
        fields.get("act", ""),
        _ids(fields.get("ids", "").split(",")),
        request.queue,
        request.backend.client,
    )
    _check(act)
    if act == "retry":
        n = await client.queues.retry_failing(queue, message_ids=ids)
        for message_id in ids:
            if await client.inspect.state(queue, message_id) == "delayed":
                n += len(await client.set_vt(queue, message_id, 0))
    elif act == "cancel":
        n = sum(result.outcome != "unknown" for result in await client.cancel(queue, ids))
    elif act == "reject":
        n = await client.queues.reject_failing(queue, message_ids=ids)
    else:
        n = len(await client.delete(queue, ids))
    return go(address("/queue/messages", queue=queue, done=act, n=n))


def _check(act: str) -> None:
    if act not in ACTS:
        raise RefusedError(400, "No such act", f"Messages can be selected for {', '.join(ACTS)}.")


def _ids(texts: Sequence[str]) -> list[int]:
    if not all(re.fullmatch(r"\d{1,18}", text, re.ASCII) for text in texts):
        raise RefusedError(400, "Which messages?", "Select one message or more.")
    if not 1 <= len(texts) <= SELECTED_MAX:
        raise RefusedError(400, "Which messages?", f"From 1 to {SELECTED_MAX} messages can be selected.")
    return sorted({int(text) for text in texts})


PAGES: Final = (
    Page("/queue/messages", answer, of_queue=True),
    Page("/queue/messages/selected", ask, "manage", of_queue=True),
    Page("/queue/messages/selected", do, "manage", of_queue=True, method="POST"),
)
