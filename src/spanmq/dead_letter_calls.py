"""The SQL functions of dead letters: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from spanmq import call as argument
from spanmq.body import Codec, Headers, encode_headers, read_json
from spanmq.call import Argument, Call, Rows, Seconds, Shape, number, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import DeadLetter, DeadLetterCount, Redriven


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Stands for the body that a dead letter has."""


UNCHANGED: Final = Unchanged()


@dataclass(frozen=True, slots=True)
class Filters:
    """Which dead letters; None: any."""

    category: str | None = None
    error: str | None = None
    error_class: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    payload: Mapping[str, Any] | None = None

    def arguments(self, codec: Codec) -> tuple[Argument, ...]:
        """Give those that are set."""
        texts = {"category": self.category, "error": self.error, "error_class": self.error_class}
        times = {"since": self.since, "until": self.until}
        return (
            *(argument.text(name, value) for name, value in texts.items() if value is not None),
            *(_time(name, value) for name, value in times.items() if value is not None),
            *(() if self.payload is None else (argument.json("payload", codec.encode(self.payload)),)),
        )


def dead_letters(
    codec: Codec,
    queue: str | None,
    filters: Filters,
    redriven: bool | None,
    after: int,
    quantity: int,
    body_bytes_max: int | None,
) -> Call[list[DeadLetter]]:
    """Look at dead letters."""
    arguments = (
        *_queue(queue),
        *filters.arguments(codec),
        _flag("redriven", redriven),
        argument.bigint("after", after),
        argument.integer("qty", quantity),
        *argument.body_bytes_max(body_bytes_max),
    )
    return Call("dead_letters", arguments, partial(_dead_letters, codec), queue, Shape.MESSAGES, native=True)


def dead_letters_of(
    codec: Codec, queue: str, message_id: int, body_bytes_max: int | None
) -> Call[list[DeadLetter]]:
    """Look at those of one message."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("msg_id", message_id),
        *argument.body_bytes_max(body_bytes_max),
    )
    read = partial(_dead_letters, codec)
    return Call("dead_letters_of", arguments, read, queue, Shape.MESSAGES, native=True)


def count_dead_letters(queue: str | None) -> Call[list[DeadLetterCount]]:
    """Count them."""
    return Call("count_dead_letters", _queue(queue), partial(records, _count), queue, native=True)


def redrive(
    codec: Codec,
    queue: str,
    filters: Filters,
    quantity: int,
    rate: float | None,
    delay: Seconds,
    dry_run: bool,
) -> Call[list[Redriven]]:
    """Put dead letters back."""
    arguments = (
        argument.queue_name("queue", queue),
        *filters.arguments(codec),
        argument.integer("qty", quantity),
        *(() if rate is None else (_number("rate", rate),)),
        argument.seconds("delay", delay),
        _flag("dry_run", dry_run),
    )
    return Call("redrive", arguments, partial(records, _redriven), queue, native=True)


def redrive_message(
    codec: Codec, queue: str, message_id: int, body: object, headers: Headers | None, delay: Seconds
) -> Call[int]:
    """Put one back."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("msg_id", message_id),
        *(() if isinstance(body, Unchanged) else (argument.json("message", codec.encode(body)),)),
        *(() if headers is None else (argument.json("headers", encode_headers(headers, None)),)),
        argument.seconds("delay", delay),
    )
    return Call("redrive_message", arguments, number, queue, native=True)


def purge_dead_letters(
    codec: Codec, queue: str, filters: Filters, redriven: bool | None, quantity: int, dry_run: bool
) -> Call[int]:
    """Delete dead letters."""
    arguments = (
        argument.queue_name("queue", queue),
        *filters.arguments(codec),
        _flag("redriven", redriven),
        argument.integer("qty", quantity),
        _flag("dry_run", dry_run),
    )
    return Call("purge_dead_letters", arguments, number, queue, native=True)


def _queue(queue: str | None) -> tuple[Argument, ...]:
    return () if queue is None else (argument.queue_name("queue", queue),)


def _flag(name: str, value: bool | None) -> Argument:
    if value is not None and not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} must be True or False, got {value!r}")
    return Argument(name, None if value is None else str(value).lower(), "cast({} as boolean)")


def _number(name: str, value: float) -> Argument:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgumentError(f"{name} must be a number, got {value!r}")
    return Argument(name, repr(float(value)), "cast({} as double precision)")


def _time(name: str, value: datetime) -> Argument:
    if getattr(value, "tzinfo", None) is None:
        raise InvalidArgumentError(f"{name} must be a datetime with a time zone, got {value!r}")
    return Argument(name, value.astimezone(UTC).isoformat(), "cast({} as timestamptz)")


def _dead_letters(codec: Codec, rows: Rows) -> list[DeadLetter]:
    return [
        DeadLetter(
            dead_letter_id=row["dead_letter_id"],
            queue=row["queue_name"],
            message_id=row["msg_id"],
            body=codec.of(row["queue_name"]).decode(row["message"]),
            headers=None if row["headers"] is None else read_json(row["headers"]),
            group=row["group_key"],
            attempts=row["attempts"],
            enqueued_at=row["enqueued_at"],
            first_failed_at=row["first_failed_at"],
            last_failed_at=row["last_failed_at"],
            dead_at=row["dead_at"],
            category=row["category"],
            error=row["error"],
            error_class=row["error_class"],
            traceback=row["traceback"],
            worker=row["worker"],
            history=_history(row["history"]),
            redriven_at=row["redriven_at"],
            redriven_as=row["redriven_as"],
        )
        for row in rows.records()
    ]


def _history(given: Any) -> list[dict[str, Any]]:
    # A driver of other software gives it with the rest of the row, as JSON that was read already.
    failures = given if isinstance(given, list) else json.loads(given)
    times = ("failed_at", "retry_at")
    return [
        failure | {name: datetime.fromisoformat(failure[name]) for name in times if failure.get(name)}
        for failure in failures
    ]


def _count(row: dict[str, Any]) -> DeadLetterCount:
    return DeadLetterCount(row["queue_name"], row["category"], row["n"])


def _redriven(row: dict[str, Any]) -> Redriven:
    return Redriven(row["msg_id"], row["visible_at"])
