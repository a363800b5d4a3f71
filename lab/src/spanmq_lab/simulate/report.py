"""The report of a run: figures, checks, and the course over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from spanmq_lab.simulate.audit import Audit, Check, Story
from spanmq_lab.simulate.options import Options, type_name
from spanmq_lab.simulate.server import Look, Table

IDS_SHOWN: Final = 8
STEPS_MAX: Final = 120
STEP_MIN: Final = 0.1
ENDINGS: Final = {
    "complete": "all messages were handled",
    "time": "the duration was over",
    "interrupted": "it was stopped",
    "stalled": "no more progress",
    "failed": "it failed",
    "log": "a log was read",
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles, in seconds."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Return the percentiles of some latencies."""
        return cls(*(percentile(seconds, percent) for percent in (50, 90, 99, 100)))


@dataclass(frozen=True, slots=True)
class Step:
    """One step; `at` is its start in seconds since the workers were started.

    Latencies are of the messages that were done in it, in seconds from the send; None without such messages.
    """

    at: float
    seconds: float
    sent_rate: float
    handled_rate: float
    backlog: int
    latency_p50: float | None
    latency_p99: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of a run; times are in seconds, `rate` is messages handled a second.

    `rate_asked` and `rate_reached` are messages sent a second, None without a rate. `kills` are the times at
    which workers were killed, since the workers were started.
    `ideal_share` compares the messages in flight with the possible maximum, one for each key and worker;
    `idle_polls_per_second` is the number of polls of one idle worker. None: not known.
    """

    engine: str
    ending: str
    options: dict[str, Any]
    server_version: str
    seconds: float
    sent: int
    handled: int
    dead: int
    left: int
    failed: int
    delivered_again: int
    handled_again: int
    killed: int
    restarted: int
    kills: tuple[float, ...]
    rate: float
    rate_asked: float | None
    rate_reached: float | None
    send_to_start: Latency
    send_to_done: Latency
    utilisation: float
    ideal_share: float | None
    polls: int
    idle_polls: int
    idle_polls_per_second: float
    client_cpu_seconds: float
    server_cpu_seconds: float | None
    wal_bytes: int | None
    dead_tuples: int
    table_bytes: int
    tables: tuple[Table, ...]
    checks: tuple[Check, ...]
    errors: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def passed(self) -> bool:
        """Return whether all checks passed."""
        return all(check.passed for check in self.checks)

    @property
    def backlog_at_first(self) -> int:
        """Return the number of messages that waited when the workers were started."""
        first = self.steps[0]
        return round(first.backlog - (first.sent_rate - first.handled_rate) * first.seconds)

    def record(self) -> dict[str, Any]:
        """Return the report as values for JSON."""
        checks = [{**asdict(check), "passed": check.passed} for check in self.checks]
        return {"passed": self.passed, **asdict(self), "checks": checks}

    def lines(self) -> list[tuple[str, str]]:
        """Return names and values for a table."""
        options = self.options
        load = (
            f"{options['types']} types of {options['keys']:,} keys"
            if options["source"] is None
            else "real data"
        )
        ideal = "" if self.ideal_share is None else f", {self.ideal_share:.1%} of the ideal in flight"
        return [
            ("engine", f"{self.engine}, {options['workers']} workers, {load}"),
            ("ended", ENDINGS[self.ending]),
            (
                "handled",
                f"{self.handled:,} of {self.sent:,} in {self.seconds:.1f} s, {self.rate:,.1f} a second",
            ),
            *self._rate_lines(),
            ("left, dead", f"{self.left:,}, {self.dead:,}"),
            ("failed, delivered again", f"{self.failed:,}, {self.delivered_again:,}"),
            ("workers killed, restarted", f"{self.killed:,}, {self.restarted:,}"),
            ("send to start", latency_text(self.send_to_start)),
            ("send to done", latency_text(self.send_to_done)),
            ("workers busy", f"{self.utilisation:.1%}{ideal}"),
            ("idle polls", f"{self.idle_polls:,} of {self.polls:,}"),
            ("idle polls of an idle worker", f"{self.idle_polls_per_second:.2f} a second"),
            (
                "CPU of clients, server",
                f"{self.client_cpu_seconds:.1f} s, {known(self.server_cpu_seconds, '{:.1f} s')}",
            ),
            ("tables, WAL", f"{megabytes(self.table_bytes)}, {megabytes(self.wal_bytes)}"),
            ("dead tuples", f"{self.dead_tuples:,}"),
            *(("error of a process", text) for text in self.errors),
            *((check.name, verdict_text(check)) for check in self.checks),
        ]

    def _rate_lines(self) -> list[tuple[str, str]]:
        if self.rate_asked is None:
            return []
        reached = known(self.rate_reached, "{:,.1f}")
        return [("sent a second", f"{self.rate_asked:,.1f} asked, {reached} reached")]


def make_report(
    audit: Audit,
    options: Options,
    *,
    ending: str,
    ended_at: float,
    left: int | None = None,
    lines: int,
    torn: int = 0,
    before: Look | None = None,
    after: Look | None = None,
) -> Report:
    """Return the report of an audit. Without the looks at the server its resource usage is not known."""
    began_at = audit.began_at or 0.0
    complete = audit.ending == "complete"
    # The run ends with the last message, whenever that was noticed.
    until = audit.last_at if complete else ended_at
    seconds = max(until - began_at, 1e-3)
    handled = [
        story for story in audit.stories.values() if story.done_at is not None and story.sent_at is not None
    ]
    polls, idle_polls, cpu = audit.usage()
    busy = sum(audit.busy.values())
    idle_seconds = max(options.workers * seconds - busy, 1e-3)
    tables = after.tables if after else ()
    return Report(
        engine=options.engine,
        ending=ending,
        options=options.as_record(),
        server_version=after.version if after else "",
        seconds=seconds,
        sent=audit.sent,
        handled=audit.handled,
        dead=audit.dead,
        left=audit.waiting,
        failed=audit.counts["failed"],
        delivered_again=audit.counts["again"],
        handled_again=audit.counts["handled_again"],
        killed=len(audit.kills),
        restarted=audit.counts["worker_restarted"],
        kills=tuple(at - began_at for at in audit.kills),
        rate=audit.handled / seconds,
        rate_asked=options.rate,
        rate_reached=None if options.rate is None else audit.sent_rate,
        send_to_start=Latency.of(
            [
                max(s.started_at - s.sent_at, 0)
                for s in handled
                if s.started_at is not None and s.sent_at is not None
            ]
        ),
        send_to_done=Latency.of(
            [
                max(s.done_at - s.sent_at, 0)
                for s in handled
                if s.done_at is not None and s.sent_at is not None
            ]
        ),
        utilisation=busy / (options.workers * seconds),
        ideal_share=share_of_ideal(audit, options),
        polls=polls,
        idle_polls=idle_polls,
        idle_polls_per_second=idle_polls / idle_seconds,
        client_cpu_seconds=cpu,
        server_cpu_seconds=difference(before and before.cpu_seconds, after and after.cpu_seconds),
        wal_bytes=difference(before and before.wal_bytes, after and after.wal_bytes),
        dead_tuples=sum(table.dead_tuples for table in tables),
        table_bytes=sum(table.bytes for table in tables),
        tables=tables,
        checks=audit.checks(is_complete=complete, left=left, lines=lines, torn=torn, ended_at=ended_at),
        errors=tuple(dict.fromkeys(audit.failures)),
        steps=timeline(audit.stories.values(), began_at=began_at, ended_at=until),
    )


def timeline(stories: Iterable[Story], *, began_at: float, ended_at: float) -> tuple[Step, ...]:
    """Return the steps of a run."""
    span = max(ended_at - began_at, STEP_MIN)
    seconds = nice(span / STEPS_MAX)
    # The remainder belongs to the last step.
    count = max(int(span / seconds), 1)
    sent, handled = [0] * count, [0] * count
    latencies: list[list[float]] = [[] for _ in range(count)]
    backlog = 0
    for story in stories:
        if story.sent_at is None:
            continue
        if story.sent_at < began_at:
            backlog += 1
        else:
            sent[min(int((story.sent_at - began_at) / seconds), count - 1)] += 1
        if story.done_at is not None:
            place = min(max(int((story.done_at - began_at) / seconds), 0), count - 1)
            handled[place] += 1
            latencies[place].append(story.done_at - story.sent_at)
    steps = []
    for place in range(count):
        backlog += sent[place] - handled[place]
        lasted = seconds if place < count - 1 else span - place * seconds
        steps.append(
            Step(
                at=round(place * seconds, 6),
                seconds=lasted,
                sent_rate=sent[place] / lasted,
                handled_rate=handled[place] / lasted,
                backlog=backlog,
                latency_p50=percentile(latencies[place], 50),
                latency_p99=percentile(latencies[place], 99),
            )
        )
    return tuple(steps)


def nice(seconds: float) -> float:
    """Round up to a usual length of time."""
    for length in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600):
        if length >= seconds:
            return length
    return math.ceil(seconds / 600) * 600


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return the smallest value that `percent` percent of the values do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def share_of_ideal(audit: Audit, options: Options) -> float | None:
    """Return the messages in flight as a share of the possible; None with a rate, which may lack some."""
    if options.rate is not None or options.source is not None:
        return None
    possible = 0.0
    for number in range(options.types):
        name = type_name(number)
        span = audit.done_at.get(name, 0.0) - audit.first_at.get(name, 0.0)
        possible += span * min(options.keys, options.workers_of_type(number))
    return sum(audit.busy.values()) / possible if possible > 0 else None


def difference(before: Any, after: Any) -> Any:
    """Return the difference, or None if a value is not known."""
    return None if before is None or after is None else after - before


def latency_text(latency: Latency) -> str:
    """Return percentiles as a string."""
    if latency.p50 is None:
        return "-"
    return ", ".join(
        f"{name} {duration_text(value)}"
        for name, value in (
            ("p50", latency.p50),
            ("p90", latency.p90),
            ("p99", latency.p99),
            ("max", latency.max),
        )
    )


def duration_text(seconds: float | None) -> str:
    """Return a duration as a string."""
    if seconds is None:
        return "-"
    return f"{seconds * 1_000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def verdict_text(check: Check) -> str:
    """Return yes, or NO with the details."""
    if check.passed:
        return "yes"
    shown = ", ".join(check.ids[:IDS_SHOWN])
    more = f" and {len(check.ids) - IDS_SHOWN:,} more" if len(check.ids) > IDS_SHOWN else ""
    return f"NO: {shown}{more}" + (f" ({check.detail})" if check.detail else "")


def megabytes(count: int | None) -> str:
    """Return a number of bytes as a string."""
    return known(None if count is None else count / 1e6, "{:,.1f} MB")


def known(value: float | None, form: str) -> str:
    """Return a number as a string, or that it is not known."""
    return "unknown" if value is None else form.format(value)
