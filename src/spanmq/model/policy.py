"""Policies of queues, and of the categories of failures."""

from dataclasses import dataclass
from typing import Annotated, Final, TypedDict, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of a queue, including those with default values; seconds, counts, or intervals as text.

    `max_attempts` 0 means unlimited, as does None for the other limits.
    """

    max_attempts: Annotated[int, "Attempts before a message becomes a dead letter"] = 25
    lease: Annotated[float, "Default lease, in seconds"] = 30.0
    backoff_base: Annotated[float, "Pause before the second attempt, in seconds"] = 1.0
    backoff_factor: Annotated[float, "Factor of each further pause"] = 2.0
    backoff_max: Annotated[float, "Longest pause, in seconds"] = 604_800.0
    jitter: Annotated[bool, "Random part of the pause"] = True
    dead_letter_retention: Annotated[str | None, "Retention of dead letters, such as 30 days"] = None
    ordered: Annotated[bool, "Messages of a group are delivered one after the other"] = False
    fill_groups: Annotated[bool, "A receive takes what a group has before it takes of the next"] = False
    dead_letter_blocks_group: Annotated[bool, "A dead letter blocks its group"] = False
    redrive_delay: Annotated[float, "Default delay of redriven dead letters, in seconds"] = 60.0
    paused: Annotated[bool, "Deliveries are paused"] = False
    drop_expired: Annotated[bool, "Expired messages are deleted, not dead letters"] = False
    max_in_flight: Annotated[int | None, "Most messages in flight"] = None
    max_in_flight_per_group: Annotated[int | None, "Most messages in flight of one group"] = None
    rate_limit: Annotated[float | None, "Messages per second for all receivers"] = None
    rate_burst: Annotated[float | None, "Most messages at once with a rate limit"] = None
    rate_limit_per_group: Annotated[float | None, "Messages per second of one group"] = None
    rate_burst_per_group: Annotated[
        float | None, "Most messages of one group at once with its rate limit"
    ] = None
    rate_cost: Annotated[str | None, "Place of the tokens that a message draws, such as header:cost"] = None
    group_shares: Annotated[
        dict[str, float] | None, 'Equal shares of the groups, or weights, such as {"vip": 3}'
    ] = None
    group_by: Annotated[str | None, "Place of a message's group, such as $.tenant"] = None
    priority_aging: Annotated[float, "Seconds of waiting that count as one priority level"] = 60.0
    max_backlog: Annotated[int | None, "Most unsettled messages; senders get an error"] = None
    keep: Annotated[str | None, "Time that settled messages stay in the log, such as 7 days"] = None
    archive_on_ack: Annotated[bool, "Acked messages are archived"] = False
    archive_retention: Annotated[str | None, "Retention of the archive, such as 30 days"] = None


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
    rate_limit_per_group: float | None
    rate_burst_per_group: float | None
    rate_cost: str | None
    group_shares: dict[str, float] | None
    group_by: str | None
    priority_aging: float | None
    max_backlog: int | None
    keep: str | None
    archive_on_ack: bool | None
    archive_retention: str | None


# The settings in a few words, for forms and the description of the routes.
SETTING_WORDS: Final[dict[str, str]] = {
    name: kind.__metadata__[0] for name, kind in get_type_hints(Policy, include_extras=True).items()
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
    """The policy of a category of failures; None: the queue's policy. `queue` is None for the general policy."""

    category: str
    retries: bool
    max_attempts: int | None
    backoff_base: float | None
    backoff_factor: float | None
    backoff_max: float | None
    queue: str | None
