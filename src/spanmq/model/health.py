"""The state of queues and of the server."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """The current state of a queue: messages by state, ages in seconds (None: no such message), receivers.

    `visible` + `in_flight` + `delayed` + `failed` are the `backlog`. `receivers` is the number of running
    leases, plus one while a receiver waits. `oldest_snapshot_seconds` is that of the whole cluster. A worker
    whose circuit breaker is open receives nothing until `breaker_open_until`. `silent_receivers` are Spark
    streams that hold messages and have not called for a quarter of an hour. `workers` reported within a minute; None
    from a schema before 0.2.
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
    silent_receivers: int
    workers: int | None = None

    @property
    def lacks_worker(self) -> bool:
        """Return whether messages are visible and nothing receives them, though the queue is not paused."""
        is_held = self.is_paused or self.breaker_open_until is not None
        return bool(self.visible) and self.workers == 0 and not self.receivers and not is_held


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of a queue in the `duration_seconds` before `sampled_at`, and its state at that time.

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
    """The state of a queue at its last sample (`sampled_at` None: not sampled yet), and some current values.

    Current are `sent_total`, which only rises, `dead_letters`, `is_paused`, `breaker_open_until` (see QueueHealth)
    and `breaker_error` (why), `workers` (those that reported within a minute), `blocked_groups` (that wait for a dead
    letter, up to 1,000), `failing` (messages that failed and wait for another attempt, up to 1,000) and
    `oldest_snapshot_seconds`, the same for all queues. The others are as in a Sample.
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
    workers: int
    blocked_groups: int
    failing: int
    oldest_snapshot_seconds: float | None
    breaker_error: str | None = None

    def lacks_worker(self, visible: int | None, in_flight: int | None) -> bool:
        """Return whether messages wait, as many as are `visible` now, and nothing receives them.

        Receivers that do not report are known by what is `in_flight`, and by what was received before the last
        sample.
        """
        return bool(visible) and not (self.workers or self.received or in_flight or self.is_paused)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsStep:
    """The counts of several queues in the step that `began_at` this time; None: no sample.

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


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one `check` of `doctor`: a `level` of "ok", "warning" or "problem", and an action."""

    check: str
    level: str
    finding: str
    advice: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a message's handler, reported by `spanmq.progress`: a `share` from 0 to 1, and a note.

    `task` is None where the handler serves no tasks. A handler of several messages is shown with the first one.
    """

    message_id: int
    task: str | None
    share: float
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningHandler:
    """A handler that has run for `seconds` with a message, and of which `task`, None where it serves no tasks.

    `stack` is where its code is, the innermost call last; None where it was not asked for.
    """

    message_id: int
    task: str | None
    seconds: float
    stack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker that runs for a queue, as it reported at `seen_at`.

    It handles up to `slots` messages of all its queues at once, and holds `held` of this one. `progress` has those of
    its running handlers that reported one, up to 100. Its circuit breaker is open until `breaker_open_until` (None: it
    is closed), because of `breaker_error`. A command asked it to stop at `stop_asked_at`, if any has. `slow` has its
    handlers that took unusually long.
    """

    worker: str
    queue: str
    started_at: datetime
    seen_at: datetime
    slots: int
    held: int
    breaker_open_until: datetime | None
    progress: tuple[Progress, ...]
    breaker_error: str | None = None
    stop_asked_at: datetime | None = None
    slow: tuple[RunningHandler, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """The counts of a kind of task that was done and failed, and the median and 95th percentile of its seconds."""

    queue: str
    kind: str
    done: int
    failed: int
    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskShape:
    """The arguments with which messages for a `task` were sent from `first_at` until `noted_at`, within ten minutes.

    `shape` has the JSON type of each argument by its name. `may_wait` says whether such a message may be among those
    that are not settled. `task` is None where a role sent more shapes than are noted.
    """

    task: str | None
    shape: dict[str, str]
    first_at: datetime
    noted_at: datetime
    may_wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """The counts of a kind of task that was done and failed in the step that `began_at` this time.

    `p50` and `p95` are the seconds that 50 and 95 of 100 of them took at most; None: none ended.
    """

    began_at: datetime
    done: int
    failed: int
    p50: float | None
    p95: float | None
