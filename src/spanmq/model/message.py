"""What is received and settled."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from spanmq.errors import InvalidBodyError
from spanmq.model.parse import dataclass_of, parse

GROUP_HEADER: Final = "x-pgmq-group"

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One delivery of a message, or a look at one.

    `attempt` counts deliveries, this one included (0: never delivered). Before `leased_until` nobody else
    gets it. `lease_id` and `slot` are there only after `receive`: PGMQ's calls have no lease to name;
    `archived_at` only after `peek_archive`.
    `last_error` is the text of the last failure, if any.
    """

    queue: str
    message_id: int
    body: Any
    headers: dict[str, Any] | None
    attempt: int
    enqueued_at: datetime
    leased_until: datetime
    last_read_at: datetime | None = None
    lease_id: int | None = None
    slot: int | None = None
    group: str | None = None
    last_error: str | None = None
    archived_at: datetime | None = None

    def parse(self, kind: type[Kind]) -> Kind:
        """Make a `kind` of the body: a Pydantic model by validation, a dataclass by annotations, in depth.

        What the encoder made plain comes back as it was sent: dataclasses and models within, dates, times,
        UUIDs, enumerations, tuples, whole numbers as keys. A dataclass takes no notice of fields that it
        doesn't know, so that a sender may be a release ahead. Raises InvalidBodyError for a body that doesn't
        fit a dataclass, TypeError for a `kind` that is neither, NameError for annotations that can't be read;
        a model raises what it raises.
        """
        if hasattr(kind, "model_validate"):
            model: Kind = parse(self.body, kind)
            return model
        found = dataclass_of(kind)
        if found is None:
            raise TypeError(f"{kind!r} is neither a dataclass nor a Pydantic model")
        try:
            parsed: Kind = parse(self.body, kind)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidBodyError(
                f"message {self.message_id} is no {found.__qualname__}: {error}", queue=self.queue
            ) from error
        return parsed


@dataclass(frozen=True, slots=True)
class Leased:
    """Messages by their ids and the lease that they were received under, for settling without the messages."""

    queue: str
    lease_id: int
    message_ids: int | Iterable[int]


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of one message in a call that settles it.

    `ack` gives "acked" or "stale" (this lease no longer holds it: nothing was done to it), `nack` "retrying",
    "dead" or "stale", `reject` "dead" or "stale", `release` "released" or "stale"; `cancel` gives
    "cancelled", "processing" (somebody holds it) or "unknown".
    """

    message_id: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in one attempt to handle a message.

    `outcome` is "retrying" (it comes again at `retry_at`), "expired" (its lease ran out) or "dead".
    """

    attempt: int
    failed_at: datetime
    outcome: str
    category: str
    error: str | None
    error_class: str | None
    traceback: str | None
    worker: str | None
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Routed:
    """A message that a topic sent into a queue."""

    queue: str
    message_id: int


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
class Batch:
    """A batch of messages, and the message that is sent when all of them are settled.

    `done`, `dead`, `ended_at` and `message_id` are None until then; `dead` counts dead letters, `done` the rest.
    """

    batch_id: int
    queue: str
    body: object
    headers: dict[str, Any] | None
    total: int
    unsettled: int
    done: int | None
    dead: int | None
    created_at: datetime
    ended_at: datetime | None
    message_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring message: when it comes, and what; `next_at` is None where no time is planned.

    All its times up to `planned_until` are known to the database; who keeps house plans more. Maintenance
    pauses it, with a `pause_reason`, when the role `made_by` may no longer send into the queue.
    """

    name: str
    queue: str
    cron: str
    time_zone: str
    body: object
    headers: dict[str, Any] | None
    catch_up: bool
    is_paused: bool
    next_at: datetime | None
    last_at: datetime | None
    last_message_id: int | None
    planned_until: datetime
    made_by: str
    pause_reason: str | None
