"""How a queue delivers, and what follows from which category of failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of a queue, including those with default values; seconds, counts, or intervals as text.

    `max_attempts` 0 means unlimited, as does None for the other limits.
    """

    max_attempts: int
    lease: float
    backoff_base: float
    backoff_factor: float
    backoff_max: float
    jitter: bool
    dead_letter_retention: str | None
    ordered: bool
    dead_letter_blocks_group: bool
    paused: bool
    drop_expired: bool
    max_in_flight: int | None
    max_in_flight_per_group: int | None
    rate_limit: float | None
    rate_burst: float | None
    priority_aging: float
    max_backlog: int | None
    keep: str | None
    archive_on_ack: bool
    archive_retention: str | None


class PolicyChange(TypedDict, total=False):
    """The settings of a policy that change; None restores a default."""

    max_attempts: int | None
    lease: float | None
    backoff_base: float | None
    backoff_factor: float | None
    backoff_max: float | None
    jitter: bool | None
    dead_letter_retention: str | None
    ordered: bool | None
    dead_letter_blocks_group: bool | None
    paused: bool | None
    drop_expired: bool | None
    max_in_flight: int | None
    max_in_flight_per_group: int | None
    rate_limit: float | None
    rate_burst: float | None
    priority_aging: float | None
    max_backlog: int | None
    keep: str | None
    archive_on_ack: bool | None
    archive_retention: str | None


# The settings in a few words, for forms and the description of the routes. docs/reference/policy.md has their ranges.
SETTING_WORDS: Final = {
    "max_attempts": "After how many attempts a message is a dead letter",
    "lease": "Seconds of a lease, unless a receiver says",
    "backoff_base": "Seconds before the second attempt",
    "backoff_factor": "By how much longer each further pause is",
    "backoff_max": "Seconds of the longest pause",
    "jitter": "Pauses are drawn at random, up to their length",
    "archive_on_ack": "Acked messages go to the archive",
    "archive_retention": "How long the archive keeps them",
    "dead_letter_retention": "How long dead letters are kept",
    "ordered": "One after the other within a group",
    "dead_letter_blocks_group": "A dead letter stops its group",
    "drop_expired": "What expired is dropped, not made a dead letter",
    "priority_aging": "Seconds of waiting that count as one step of priority",
    "paused": "Receivers get nothing",
    "max_in_flight": "Messages that may be in flight at once",
    "max_in_flight_per_group": "Messages of a group in flight at once",
    "rate_limit": "Messages a second that receivers may get",
    "rate_burst": "Messages at once, with a rate limit",
    "max_backlog": "Messages that may wait",
    "keep": "How long settled messages stay in the log",
}


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """Errors whose text and class match are of this category; `queue` is None in a rule for all queues."""

    name: str
    category: str
    error: str | None
    error_class: str | None
    place: int
    queue: str | None


@dataclass(frozen=True, slots=True)
class CategoryPolicy:
    """What a category of failures means; None: as the queue's policy says. `queue` is None in general."""

    category: str
    retries: bool
    max_attempts: int | None
    backoff_base: float | None
    backoff_factor: float | None
    backoff_max: float | None
    queue: str | None
