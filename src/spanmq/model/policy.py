"""How a queue delivers, and what follows from which category of failure."""

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
    fill_groups: bool
    dead_letter_blocks_group: bool
    redrive_delay: float
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
    fill_groups: bool | None
    dead_letter_blocks_group: bool | None
    redrive_delay: float | None
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
    "max_attempts": "Attempts before a message becomes a dead letter",
    "lease": "Default lease, in seconds",
    "backoff_base": "Pause before the second attempt, in seconds",
    "backoff_factor": "Factor of each further pause",
    "backoff_max": "Longest pause, in seconds",
    "jitter": "Random part of the pause",
    "archive_on_ack": "Acked messages are archived",
    "archive_retention": "Retention of the archive, such as 30 days",
    "dead_letter_retention": "Retention of dead letters, such as 30 days",
    "ordered": "Messages of a group are delivered one after the other",
    "fill_groups": "A receive takes what a group has before it takes of the next",
    "dead_letter_blocks_group": "A dead letter blocks its group",
    "redrive_delay": "Default delay of redriven dead letters, in seconds",
    "drop_expired": "Expired messages are deleted, not dead letters",
    "priority_aging": "Seconds of waiting that count as one priority level",
    "paused": "Deliveries are paused",
    "max_in_flight": "Most messages in flight",
    "max_in_flight_per_group": "Most messages in flight of one group",
    "rate_limit": "Messages per second for all receivers",
    "rate_burst": "Most messages at once with a rate limit",
    "max_backlog": "Most unsettled messages; senders get an error",
    "keep": "Time that settled messages stay in the log, such as 7 days",
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
