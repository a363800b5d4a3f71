"""Parts of a queue as people look at them: small, frozen values without any behaviour of their own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """How a queue stands now, if it is small (`is_exact`); else the counts are None.

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
class HeldLease:
    """What one receive took and holds still: `messages`, the ids of which are first_id to last_id.

    `is_expired`: the lease ran out, and nobody has received them again yet. Its number is not told: with it
    they could be settled.
    """

    leased_at: datetime
    leased_until: datetime
    messages: int
    first_id: int
    last_id: int
    attempt: int
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group and what it waits for.

    `state` is "free"; "leased" or "retrying", to `until` at most; "delayed", when its first message is, or
    "dead letter", when it waits for one. With `has_more` it has more than `messages`.
    """

    group: str
    state: str
    until: datetime | None
    first_id: int | None
    messages: int
    has_more: bool


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


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsStep:
    """What queues did together in the step that `began_at` this time; None: nothing.

    Samples are spread evenly over the time that they cover, so counts have fractions.
    """

    began_at: datetime
    sent: float | None
    received: float | None
    settled: float | None
    failed: float | None
    dead: float | None
    backlog: float | None
    visible: float | None
    in_flight: float | None
    oldest_ready_seconds: float | None
