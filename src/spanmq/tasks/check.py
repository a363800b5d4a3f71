"""The check of queued messages against the tasks of this program: `spanmq check`, and a line of a worker's log."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any, Final, NamedTuple

from spanmq.client import AsyncClient
from spanmq.codec.encryption import Unopened
from spanmq.errors import QueueNotFoundError, SpanmqError, TaskArgumentsError
from spanmq.model import Message, TaskShape
from spanmq.tasks.periodic import state_of
from spanmq.tasks.task import Catalog, Task

logger = logging.getLogger("spanmq.tasks")

# Messages of a queue that a worker reads at its start.
LIMIT_AT_START: Final = 500
# One half of what is read is the oldest, the other one pages between these and the newest.
PAGES: Final = 5
# Larger bodies are not read.
BODY_BYTES_MAX: Final = 16_384
DEAD_LETTERS_MAX: Final = 1_000
WAITS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCalls:
    """Messages of a `queue` that this program handles in one way, as the `sentence` says.

    They are for `task`, None where that is not known. `place` is where they are: "waiting", "delayed", "scheduled",
    "parked" (for a signal), "dead", or "noted" for what a sender noted and none of the messages shows. `count` is how
    many were found. `verdict` is "fits", "fits by default" (arguments are missing that have one), "fails" or "unread".
    `is_breaking` says that they are queued and could not run.
    """

    queue: str
    task: str | None
    place: str
    count: int
    verdict: str
    sentence: str
    is_breaking: bool


class Fit(NamedTuple):
    """The result of a check of arguments: the task, a verdict, and the problems as text."""

    task: str | None
    verdict: str
    reason: str


class QueueSample(NamedTuple):
    """Messages of a queue, of `length` that it has."""

    messages: list[Message]
    length: int
    read_at: datetime

    @property
    def is_complete(self) -> bool:
        """Return whether all messages were read."""
        return len(self.messages) >= self.length


async def check_queued(
    client: AsyncClient, catalog: Catalog, queues: Iterable[str], limit: int
) -> list[QueuedCalls]:
    """Return what becomes of the messages in queues, in each of which up to `limit` are read.

    Raises MissingPrivilegeError without the right to look into one.
    """
    queued: list[QueuedCalls] = []
    for queue in queues:
        try:
            queued += await _check_queue(client, catalog, queue, limit)
        except QueueNotFoundError:
            continue
    return queued


async def warn(client: AsyncClient, catalog: Catalog, queues: Iterable[str]) -> None:
    """Log what is queued and could not run, from a small sample; errors do not matter here."""
    try:
        for calls in await check_queued(client, catalog, queues, LIMIT_AT_START):
            if calls.is_breaking:
                logger.warning(
                    "queued_calls_fail queue=%s task=%s found=%r", calls.queue, calls.task, calls.sentence
                )
    except SpanmqError as error:
        logger.debug("queued_calls_unchecked tasks=%s error=%s", catalog.name, error)


async def _check_queue(
    client: AsyncClient, catalog: Catalog, queue: str, limit: int
) -> Iterable[QueuedCalls]:
    sample = await _sample(client, queue, limit)
    bodies = [(_place(message, sample.read_at), message.body) for message in sample.messages]
    letters = await client.dead_letters.list(queue, limit=DEAD_LETTERS_MAX, body_bytes_max=BODY_BYTES_MAX)
    bodies += [("dead", letter.body) for letter in letters]
    schedules = await client.schedules.list(queues=[queue], body_bytes_max=BODY_BYTES_MAX)
    # A worker of this program sets its own anew.
    bodies += [("scheduled", schedule.body) for schedule in schedules if not state_of(schedule, catalog)]
    waits = await client.signals.list(
        queue, only_waits=True, limit=WAITS_MAX + 1, body_bytes_max=BODY_BYTES_MAX
    )
    bodies += [("parked", wait.body) for wait in waits[:WAITS_MAX]]
    fits = Counter((place, fit_of(catalog, queue, body)) for place, body in bodies)
    queued = [
        _queued(catalog, queue, place, fit, count) for (place, fit), count in sorted(fits.items(), key=str)
    ]
    if len(waits) > WAITS_MAX:
        queued.append(_waits_sampled(queue))
    if not sample.is_complete:
        read = {(fit.task, fit.reason) for place, fit in fits if place in ("waiting", "delayed")}
        queued.append(_sampled(queue, sample))
        queued += _noted(catalog, queue, await client.inspect.task_shapes(queue), read)
    return queued


async def _sample(client: AsyncClient, queue: str, limit: int) -> QueueSample:
    """Read the oldest messages of a queue, and pages between these and the newest."""
    counts = await client.queues.metrics(queue)
    half = (limit + 1) // 2
    messages = await client.peek(queue, half, body_bytes_max=BODY_BYTES_MAX)
    if len(messages) == half:
        newest = await client.peek(queue, 1, body_bytes_max=0, newest_first=True)
        first = messages[-1].message_id
        last = newest[0].message_id if newest else first
        for after in range(first, last, ceil((last - first) / PAGES) or 1):
            messages += await client.peek(
                queue,
                max(half // PAGES, 1),
                after=max(after, messages[-1].message_id),
                body_bytes_max=BODY_BYTES_MAX,
            )
    return QueueSample(messages, counts.length, counts.scraped_at)


def _place(message: Message, at: datetime) -> str:
    return "delayed" if message.leased_until > at and not message.attempt else "waiting"


def fit_of(catalog: Catalog, queue: str, body: Any) -> Fit:
    """Return how the body of a message of a queue fits the tasks of a program."""
    if isinstance(body, Unopened) or (isinstance(body, dict) and "spanmq.cut" in body):
        return Fit(None, "unread", f"larger than {BODY_BYTES_MAX:,} bytes, or encrypted")
    name = body.get("task") if isinstance(body, dict) else None
    if not isinstance(name, str) or not name:
        return Fit(None, "fails", "not for a task")
    task = catalog.tasks.get(name)
    if task is None:
        return Fit(name, "fails", "which this program does not have")
    if not catalog.allows(task, queue):
        return Fit(name, "fails", "which is not registered for this queue")
    arguments = body.get("args", {})
    names = _names(task, arguments) if isinstance(arguments, dict) else Fit(name, "fits", "")
    if names.verdict == "fails":
        return names._replace(task=name)
    try:
        task.arguments.read(arguments)
    except TaskArgumentsError as error:
        reason = error.message.partition(": ")[2]
        return Fit(name, "fails", f"arguments that do not fit ({reason[:300]})")
    except Exception as error:  # noqa: BLE001, a validator of the program may raise anything
        return Fit(name, "fails", f"arguments for which it raises {type(error).__name__}")
    return names._replace(task=name)


def _names(task: Task[..., Any], names: Iterable[str]) -> Fit:
    """Return how the names of arguments fit a task."""
    missing, defaults, unknown = task.arguments.compare(names)
    parts = [_quoted(unknown)] if unknown else []
    parts += [f"no {_quoted(missing)}"] if missing else []
    if parts:
        return Fit(task.name, "fails", " and ".join(parts))
    return (
        Fit(task.name, "fits by default", f"no {_quoted(defaults)}")
        if defaults
        else Fit(task.name, "fits", "")
    )


def _queued(catalog: Catalog, queue: str, place: str, fit: Fit, count: int) -> QueuedCalls:
    is_breaking = fit.verdict == "fails" and place != "dead"
    sentence = _sentence(catalog, place, fit, count)
    return QueuedCalls(
        queue=queue, task=fit.task, place=place, count=count, verdict=fit.verdict, sentence=sentence,
        is_breaking=is_breaking,
    )  # fmt: skip


def _sentence(catalog: Catalog, place: str, fit: Fit, count: int) -> str:
    end = "would fail again after a redrive" if place == "dead" else "would fail"
    is_one = count == 1
    messages = "message" if is_one else "messages"
    if fit.verdict == "unread":
        return f"{count:,} {place} {messages} {'was' if is_one else 'were'} not read ({fit.reason})"
    if fit.task is None:
        return f"{count:,} {place} {messages} {'is' if is_one else 'are'} {fit.reason}: {end}"
    if fit.reason.startswith("which"):
        if catalog.unknown_task == "defer" and place != "dead":
            end = "would wait for a worker that has it"
        return f"{count:,} {place} {messages} {'is' if is_one else 'are'} for task `{fit.task}`, {fit.reason}: {end}"
    named = f"{count:,} {place} `{fit.task}` {messages}"
    if fit.verdict == "fits":
        return f"{named} {'fits' if is_one else 'fit'}"
    has = "has" if is_one else "have"
    if fit.verdict == "fits by default":
        return f"{named} {has} {fit.reason}; it has a default: fine"
    return f"{named} {has} {fit.reason}: {end}"


def _sampled(queue: str, sample: QueueSample) -> QueuedCalls:
    sentence = (
        f"{len(sample.messages):,} of {sample.length:,} messages of {queue} were read: the oldest, and some up to the"
        " newest; the counts are of these"
    )
    return QueuedCalls(
        queue=queue, task=None, place="waiting", count=sample.length - len(sample.messages), verdict="unread",
        sentence=sentence, is_breaking=False,
    )  # fmt: skip


def _waits_sampled(queue: str) -> QueuedCalls:
    sentence = f"more than {WAITS_MAX:,} messages for {queue} are parked for a signal: the first ones by name were read"
    return QueuedCalls(
        queue=queue,
        task=None,
        place="parked",
        count=1,
        verdict="unread",
        sentence=sentence,
        is_breaking=False,
    )


def _noted(
    catalog: Catalog, queue: str, shapes: list[TaskShape], read: set[tuple[str | None, str]]
) -> Iterator[QueuedCalls]:
    """Yield the shapes that would fail, may wait, and were in none of the messages that were read."""
    for shape in shapes:
        if not shape.may_wait:
            continue
        fit = _fit_of_shape(catalog, queue, shape)
        if fit.verdict == "fits" or (fit.task, fit.reason) in read:
            continue
        times = f"from {shape.first_at:%Y-%m-%d %H:%M} to {shape.noted_at:%Y-%m-%d %H:%M %Z}"
        sentence = (
            f"`{fit.task}` was sent with {fit.reason}, {times}; none was read, one may wait: would fail"
        )
        if fit.task is None:
            sentence = f"a role sent more shapes than are noted, {times}: others may wait"
        elif fit.reason.startswith("which"):
            sentence = (
                f"task `{fit.task}`, {fit.reason}, was sent {times}; none was read, one may wait: would fail"
            )
        yield QueuedCalls(
            queue=queue, task=fit.task, place="noted", count=0, verdict=fit.verdict, sentence=sentence,
            is_breaking=fit.verdict == "fails",
        )  # fmt: skip


def _fit_of_shape(catalog: Catalog, queue: str, noted: TaskShape) -> Fit:
    if noted.task is None:
        return Fit(None, "unread", "")
    task = catalog.tasks.get(noted.task)
    if task is None or not catalog.allows(task, queue):
        return fit_of(catalog, queue, {"task": noted.task})
    fit = _names(task, noted.shape)
    if fit.verdict != "fails" and (wrong := task.arguments.misfits(noted.shape)):
        types = ", ".join(f"`{name}` as {noted.shape[name]}" for name in wrong)
        return Fit(noted.task, "fails", types)
    return Fit(noted.task, "fails" if fit.verdict == "fails" else "fits", fit.reason)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
