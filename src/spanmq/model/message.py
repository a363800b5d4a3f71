"""Messages, their settlements and their states."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from spanmq.errors import InvalidBodyError
from spanmq.model.parse import parse, reasons

GROUP_HEADER: Final = "x-pgmq-group"

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One delivery of a message, or a message that was peeked at.

    `queue` and `message_id` name it; `body` is any value that JSON can represent, `headers` a mapping or None,
    `group` the group of an ordered message. It was sent at `enqueued_at`. `attempt` counts deliveries, including this
    one (0: never delivered), the last of them at `last_read_at`. Until `leased_until` no other receiver gets it.
    `lease_id` and `slot` are set only by `receive`, because PGMQ's calls have no lease; `archived_at` only by
    `peek_archive`. `last_error` is the text of the last failure, if any.
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
        """Return the body as a `kind`, any type that Pydantic validates: a model, a dataclass, a list of them.

        Values that the encoder converted are converted back: dataclasses and models within, dates, times,
        UUIDs, enumerations, tuples, integers as keys. Fields that a dataclass does not have are ignored, so
        that a sender may be a release ahead. Raises InvalidBodyError for a body that does not match, TypeError for
        a `kind` that can't be validated, and ExtraNotInstalledError without Pydantic (the extra `tasks`).
        """
        try:
            parsed: Kind = parse(self.body, kind)
        except ValueError as error:
            name = getattr(kind, "__qualname__", kind)
            raise InvalidBodyError(
                f"message {self.message_id} is not a {name}: {reasons(error, 'body')}", queue=self.queue
            ) from error
        return parsed


@dataclass(frozen=True, slots=True)
class Leased:
    """Messages by their ids and the lease that they were received under, for settling without the messages.

    `queue`, `lease_id` and `message_ids` (one id or several) are those of the messages.
    """

    queue: str
    lease_id: int
    message_ids: int | Iterable[int]


@dataclass(frozen=True, slots=True)
class Settled:
    """The `outcome` of a call that settles messages, for the one with this `message_id`.

    `ack` returns "acked" or "stale" (this lease no longer holds the message, which is unchanged), `nack` "retrying",
    "dead" or "stale", `reject` "dead" or "stale", `release` "released" or "stale", `extend` "extended" or "stale";
    `cancel` returns "cancelled", "cancelling" (a receiver holds it) or "unknown".
    """

    message_id: int
    outcome: str


@dataclass(frozen=True, slots=True)
class Result:
    """The result of the message with this `message_id` in a `queue`; `state` says which one.

    "stored": its handler returned `value`. "unstored": what it returned could not be stored, because of `error`.
    "dead": it is a dead letter, because of `error`. "missing": no result is kept, because none was stored, it has
    expired, or the message is not settled.
    """

    queue: str
    message_id: int
    state: str
    value: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of one attempt to handle a message.

    `outcome` is "retrying" (the next attempt is at `retry_at`), "expired" (its lease expired) or "dead".
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
class Explanation:
    """One reason why a message is not delivered, or that it is visible.

    `code` is one of the words in the reference of SQL, such as "leased" or "behind"; "visible" is the only one that
    says that receives return the message now. `sentence` is the reason in words. It ends at `until`, or by `call`, a
    statement of SQL; None where no time, or no call, is known. `object` has facts about what is in the way.
    """

    code: str
    sentence: str
    until: datetime | None
    object: dict[str, Any] | None
    call: str | None


def obstacle(reasons: Iterable[Explanation]) -> Explanation | None:
    """Return the first of the `reasons` that keeps a message from being delivered; None without one."""
    return next((reason for reason in reasons if reason.code != "visible"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """The messages that a lease still holds: `messages`, with ids from first_id to last_id.

    `is_expired`: the lease has expired, and they have not been received again yet. The lease id is not
    included: with it they could be settled.
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
class SignalEntry:
    """What is stored for the signal `name` of a `queue`: a message that waits for it, or a signal that is kept.

    With `is_wait`, `body` and `headers` are those of the message, which is sent without the signal at `until`. Else
    `body` is that of the signal, which is forgotten at `until`. It was made at `made_at`.
    """

    queue: str
    name: str
    is_wait: bool
    body: Any
    headers: dict[str, Any] | None
    made_at: datetime
    until: datetime


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

    The database knows all its times up to `planned_until`; maintenance plans more. Maintenance pauses it,
    with a `pause_reason`, when the role `made_by` may no longer send to the queue.
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
