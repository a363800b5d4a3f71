"""Queues: their counts, their size, their tables, and what is bound to them."""

from dataclasses import dataclass
from datetime import datetime
from string import ascii_uppercase
from typing import Any, Final, Literal

Flavour = Literal["spanmq", "upstream", "none"]


def folded(name: str) -> str:
    """Return the name by which queues are compared: A to Z have no case, as in PostgreSQL's collation "C".

    All other letters are as they are: what their lower case is depends on the collation of a database.
    """
    return name.lower() if name.isascii() else name.translate(_LOWER)


_LOWER: Final = {ord(letter): letter.lower() for letter in ascii_uppercase}


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue in the list of `list_queues`."""

    name: str
    is_partitioned: bool
    is_unlogged: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """The counts of one queue at `scraped_at`; ages are in seconds, None when the queue is empty."""

    queue: str
    length: int
    visible_length: int
    total_messages: int
    newest_age_seconds: int | None
    oldest_age_seconds: int | None
    scraped_at: datetime


@dataclass(frozen=True, slots=True)
class QueueSchema:
    """The JSON Schema of a queue's bodies, None if it has none; if `is_checked`, what is sent must fit."""

    schema: dict[str, Any] | bool | None
    is_checked: bool


@dataclass(frozen=True, slots=True)
class QueueStorage:
    """The disk space of one queue, in bytes with indexes.

    `unsettled` is the number of its messages that are not settled; `state_bytes` is of those of all queues.

    `wal_bytes` is what the server has ever written of WAL: its growth between two looks tells something.
    """

    segments: int
    log_bytes: int
    archive_bytes: int
    unsettled: int
    state_bytes: int
    wal_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayExtent:
    """The oldest message of a queue that can be replayed, and the disk space of the kept messages.

    The log has every message that was sent since `since`, None while it has none. Of its `bytes`,
    `kept_bytes` are there only because the policy says `keep`.
    """

    keep: str | None
    since: datetime | None
    first_message_id: int | None
    last_message_id: int | None
    bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """The number of messages that were sent again, and the old id of the last one, None if there were none."""

    count: int
    last_message_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCount:
    """The current state of a queue, if it is small (`is_exact`); otherwise the counts are None.

    `visible` + `in_flight` + `delayed` + `failed` are the `backlog`, as in QueueHealth. A worker whose
    circuit breaker is open receives nothing until `breaker_open_until`.
    """

    queue: str
    is_paused: bool
    breaker_open_until: datetime | None
    is_exact: bool
    backlog: int | None
    visible: int | None
    in_flight: int | None
    delayed: int | None
    failed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A table of the log, for the ids first_id to last_id.

    `state` is "ahead" (no id is drawn yet), "open", "settled" (nothing in it is needed) or "truncated".
    """

    segment: str
    first_id: int
    last_id: int
    state: str
    is_rewritten: bool
    bytes: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TopicBinding:
    """A pattern and the queue that gets what matches it; `bound_at` is None from `test_routing`."""

    pattern: str
    queue: str
    expression: str
    bound_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class NotifyThrottle:
    """The limit for announcements of new messages of a queue."""

    queue: str
    throttle_ms: int
    last_notified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A queue (`subscription`) that gets every message of another, since `created_at`."""

    subscription: str
    queue: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change that was recorded: a call of the function `action` with the arguments `details`.

    `role` is the database's, `actor` the token or the command as the caller named it, None for a program.
    """

    change_id: int
    changed_at: datetime
    role: str
    actor: str | None
    action: str
    queue: str | None
    details: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """One thing that `maintain` did."""

    action: str
    queue: str | None
    detail: str | None
