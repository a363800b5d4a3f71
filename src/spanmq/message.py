"""What the queue gives back: small, frozen values without any behaviour of their own.

Words: a message's number is `message_id` here and `msg_id` in SQL, where PGMQ's columns keep their names;
`attempt` is PGMQ's `read_ct`, `leased_until` its `vt`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

from spanmq.errors import InvalidBodyError
from spanmq.parse import dataclass_of, parse

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


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as `list_queues` gives it."""

    name: str
    is_partitioned: bool
    is_unlogged: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key of the SQS protocol; `secret` only where it was made or is checked."""

    access_key_id: str
    queues: list[str]
    verbs: list[str]
    created_at: datetime | None = None
    expires_at: datetime | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """What the SQS protocol knows of a queue: attributes and tags that were set."""

    queue: str
    attributes: dict[str, str]
    tags: dict[str, str]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class SqsOrigin:
    """Where a message of a dead-letter queue comes from; `source` is the name in SQS of the queue."""

    message_id: int
    source: str
    first_queue: str
    first_id: int
    sent_at: datetime


@dataclass(frozen=True, slots=True)
class SqsMove:
    """A task that moves messages: RUNNING, CANCELLED, COMPLETED or FAILED."""

    handle: str
    source: str
    destination: str | None
    source_arn: str
    destination_arn: str | None
    access_key_id: str | None
    rate: int | None
    status: str
    moved: int
    to_move: int
    failure: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class QueueGrant:
    """What a role may do with a queue, or with all (None): `verb` is one that grant_all() takes."""

    queue: str | None
    role: str
    verb: str


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
class QueueStorage:
    """What one queue takes on disk, in bytes with indexes.

    `runs` counts the rows that hold the state of its messages; `state_bytes` is of those of all queues.

    `wal_bytes` is what the server has ever written of WAL: its growth between two looks tells something.
    """

    segments: int
    log_bytes: int
    archive_bytes: int
    runs: int
    state_bytes: int
    wal_bytes: int


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """How a queue is now: messages by state, ages in seconds (None: there is no such), who is at work.

    `visible` + `in_flight` + `delayed` + `failed` are the `backlog`. `receivers` are leases that run, and one
    more while somebody waits. `oldest_snapshot_seconds` is of the whole cluster. A worker whose circuit
    breaker is open receives nothing until `breaker_open_until`.
    """

    queue: str
    backlog: int
    visible: int
    in_flight: int
    delayed: int
    failed: int
    dead: int
    dead_per_minute: int
    oldest_ready_seconds: float | None
    oldest_lease_seconds: float | None
    receivers: int
    waiting_sessions: int
    oldest_snapshot_seconds: float | None
    is_paused: bool
    breaker_open_until: datetime | None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a queue did in the `duration_seconds` before `sampled_at`, and how it stood then.

    `sent` counts drawn ids; `settled` and `received` are reckoned from it and the growth of the backlog.
    """

    sampled_at: datetime
    duration_seconds: float
    sent: int
    received: int
    settled: int
    failed: int
    dead: int
    backlog: int
    visible: int
    in_flight: int
    oldest_ready_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestStatistics:
    """How a queue stood at its last sample (`sampled_at` None: there is none), and two counts of now.

    Of now are `sent_total`, which only rises, `dead_letters`, `is_paused` and `breaker_open_until` (see
    QueueHealth). The others are as in a Sample.
    """

    queue: str
    is_paused: bool
    sent_total: int
    dead_letters: int
    sampled_at: datetime | None
    duration_seconds: float | None
    sent: int
    received: int
    settled: int
    failed: int
    dead: int
    backlog: int
    visible: int
    in_flight: int
    oldest_ready_seconds: float | None
    breaker_open_until: datetime | None


@dataclass(frozen=True, slots=True)
class Finding:
    """What `doctor` found in one `check`: a `level` of "ok", "warning" or "problem", and what to do."""

    check: str
    level: str
    finding: str
    advice: str | None


@dataclass(frozen=True, slots=True)
class TopicBinding:
    """A pattern and the queue that gets what matches it; `bound_at` is None from `test_routing`."""

    pattern: str
    queue: str
    expression: str
    bound_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that was given up, and its story.

    `history` holds its earlier failures, the oldest first, with the keys of `failures`. One that was put back
    has `redriven_at`; it may have died again since, as a dead letter of its own.
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
    """How many dead letters of a category wait in a queue."""

    queue: str
    category: str
    count: int


@dataclass(frozen=True, slots=True)
class Redriven:
    """A dead letter that was put back, and when it becomes visible."""

    message_id: int
    visible_at: datetime


@dataclass(frozen=True, slots=True)
class CategoryRule:
    """Errors whose text and class match are of this category; `queue` is None in a rule for all queues."""

    name: str
    category: str
    error: str | None
    error_class: str | None
    place: int
    queue: str | None


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


@dataclass(frozen=True, slots=True)
class NotifyThrottle:
    """How often at most a queue announces new messages."""

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
class PipelineRun:
    """What a job of the pipeline did; `queue` is None of one over several queues.

    `state` is "running", "succeeded", "failed", or "lost": not heard of (`seen_at`) for two minutes.
    """

    run_id: int
    job: str
    queue: str | None
    target: str | None
    begun_by: str
    state: str
    begun_at: datetime
    seen_at: datetime
    ended_at: datetime | None
    done: int | None
    report: dict[str, Any] | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A stream that consumes a queue: one checkpoint of it.

    It has claimed batches up to `batch`, those up to `settled` are done, and it holds `held` messages. Its
    last call was at `seen_at`, to the minute.
    """

    queue: str
    receiver_id: str
    label: str | None
    state: str
    batch: int
    settled: int
    held: int
    created_at: datetime
    opened_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who may do what over HTTP: `verbs` with queues whose names fit one of `queues`; * is any characters."""

    name: str
    queues: list[str]
    verbs: list[str]
    created_at: datetime
    expires_at: datetime | None
    rotated_at: datetime | None


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """One thing that `maintain` did."""

    action: str
    queue: str | None
    detail: str | None


Flavour = Literal["spanmq", "upstream", "none"]
