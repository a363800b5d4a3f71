"""Dead letters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter and its history.

    `history` holds its earlier failures, the oldest first, with the keys of `failures`. A redriven one has
    `redriven_at`; it may have failed again since, as a dead letter of its own.
    """

    dead_letter_id: int
    queue: str
    message_id: int
    body: Any
    headers: dict[str, Any] | None
    group: str | None
    attempts: int
    enqueued_at: datetime
    first_failed_at: datetime
    last_failed_at: datetime
    dead_at: datetime
    category: str
    error: str | None
    error_class: str | None
    traceback: str | None
    worker: str | None
    history: list[dict[str, Any]]
    redriven_at: datetime | None
    redriven_as: int | None


@dataclass(frozen=True, slots=True)
class DeadLetterCount:
    """The number of dead letters of a category that wait in a queue."""

    queue: str
    category: str
    count: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """A redriven dead letter, and when it becomes visible.

    In a dry run with a patch the first ten have their bodies `before` and `after` it. One with `beside` was left, and
    has no `visible_at`: `beside` is the id of a message in the queue with the same dedup_id.
    """

    message_id: int
    visible_at: datetime | None
    before: Any = None
    after: Any = None
    beside: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingCause:
    """Messages that wait for another attempt after a failure of the same cause.

    `error` is the first line of their last error, with placeholders for numbers, ids and quoted text; "" if it has
    no text. `example` is the whole error of one of them. They have `attempts` at most. `first_failed_at` is when the
    first of them failed for the first time, `last_failed_at` when one failed last, `retry_at` when the next one is
    retried, and `first_message_id` one of them. If not `is_exact`, `count` is an estimate, and the rest is that of a
    sample.
    """

    queue: str
    task: str | None
    category: str | None
    error_class: str | None
    error: str
    count: int
    is_exact: bool
    attempts: int
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    retry_at: datetime
    first_message_id: int
    example: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingMessage:
    """A message that waits for another attempt at `retry_at`, with its last failure; None if none is recorded."""

    message_id: int
    task: str | None
    attempts: int
    first_failed_at: datetime | None
    last_failed_at: datetime | None
    retry_at: datetime
    category: str | None
    error: str | None
    error_class: str | None
    traceback: str | None
    worker: str | None


class FailingFilters(TypedDict, total=False):
    """A selection of failing messages: the `task`, `category`, `error_class` and `error` of a FailingCause.

    None, or nothing: any; "": those without.
    """

    task: str | None
    category: str | None
    error_class: str | None
    error: str | None


class DeadLetterFilters(TypedDict, total=False):
    """A selection of dead letters; None, or an empty value, selects any.

    Those of a `category` and an `error_class`, a name. `error` is a regular expression, without regard to case;
    `since` and `until` are times of death, with a time zone; `payload` is contained in the body, and `where` is a JSON
    path that it meets, such as `$.amount > 100`. `dead_letter_ids` are ids.
    """

    category: str | None
    error: str | None
    error_class: str | None
    since: datetime | None
    until: datetime | None
    payload: Mapping[str, Any] | None
    where: str | None
    dead_letter_ids: Iterable[int] | None
