"""What the worker must reach, and whether it did: ratios in one run, on one server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, median, quantiles
from typing import Final

PGMQ: Final = "PGMQ's SQL, batch 100"


@dataclass(frozen=True, slots=True)
class Times:
    """What a job took, in milliseconds: time, and processor time of the contestant's process and of the server.

    `latencies_ms` are those of single jobs, from the send until the handler of an idle worker begins.
    """

    send_ms: float
    send_processor_ms: float
    send_server_ms: float
    work_ms: float
    work_processor_ms: float
    work_server_ms: float
    latencies_ms: Sequence[float]


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured: PGMQ's rates in messages a second, times by contestant, latencies in milliseconds.

    `least_ms` are of what no queue can do without. What was not measured is empty or missing.
    """

    pgmq_rates: Sequence[float]
    times: Mapping[str, Sequence[Times]]
    bare_ms: Sequence[float]
    least_ms: Sequence[float]
    worker_ms: Sequence[float]

    def rate(self, name: str) -> float:
        """Return a contestant's median rate of handling."""
        if name == PGMQ:
            return median(self.pgmq_rates)
        return 1000 / median(one.work_ms for one in self.times[name])

    def round_trip_ms(self, name: str) -> float:
        """Return the median time of a message from its send until it is settled."""
        return median(one.send_ms + one.work_ms for one in self.times[name])

    def processor_us(self, name: str) -> float:
        """Return the median processor time of a round trip, of client and server, in microseconds."""
        return 1000 * median(
            one.send_processor_ms + one.send_server_ms + one.work_processor_ms + one.work_server_ms
            for one in self.times[name]
        )


@dataclass(frozen=True, slots=True)
class Target:
    """A line of the table; what is reached must be at least `limit`, or at most where less is better."""

    what: str
    limit: float
    reach: Callable[[Run], float]
    is_most: bool = False

    def is_met(self, reached: float) -> bool:
        """Judge."""
        return reached <= self.limit if self.is_most else reached >= self.limit


TARGETS: Final = (
    Target("tasks a second", 45_000, lambda run: run.rate("spanmq-tasks")),
    Target(
        "processor time to handle a task, the worker's, µs",
        15.0,
        lambda run: 1000 * median(one.work_processor_ms for one in run.times["spanmq-tasks"]),
        is_most=True,
    ),
    Target(
        "processor time to handle a task, the server's, µs",
        9.0,
        lambda run: 1000 * median(one.work_server_ms for one in run.times["spanmq-tasks"]),
        is_most=True,
    ),
    Target(
        "processor time of a task, sending included, to graphile-worker's",
        1 / 2.2,
        lambda run: run.processor_us("spanmq-tasks") / run.processor_us("graphile-worker"),
        is_most=True,
    ),
    Target("rate, to Procrastinate's", 3.0, lambda run: run.rate("spanmq") / run.rate("procrastinate")),
    Target("rate, to PGQueuer's", 3.0, lambda run: run.rate("spanmq") / run.rate("pgqueuer")),
    Target(
        "round trip of a task, to a handler's",
        1.25,
        lambda run: run.round_trip_ms("spanmq-tasks") / run.round_trip_ms("spanmq"),
        is_most=True,
    ),
    Target(
        "round trip of a plain task, to a plain handler's",
        1.25,
        lambda run: run.round_trip_ms("spanmq-tasks-threads") / run.round_trip_ms("spanmq-threads"),
        is_most=True,
    ),
    Target(
        "rate of tasks, to Procrastinate's",
        40.0,
        lambda run: run.rate("spanmq-tasks") / run.rate("procrastinate"),
    ),
    Target("rate of tasks, to PGQueuer's", 2.5, lambda run: run.rate("spanmq-tasks") / run.rate("pgqueuer")),
    # 8,000 messages a second where this machine gives PGMQ's SQL 20,000.
    Target(
        "rate, to PGMQ's SQL at batch 100", 8_000 / 20_000, lambda run: run.rate("spanmq") / run.rate(PGMQ)
    ),
    Target(
        "latency, median, to a bare NOTIFY's",
        3.0,
        lambda run: median(run.worker_ms) / median(run.bare_ms),
        is_most=True,
    ),
    Target("latency, p99, ms", 20.0, lambda run: quantiles(run.worker_ms, n=100)[-1], is_most=True),
)


def verdicts(run: Run) -> list[tuple[Target, float | None, str]]:
    """Return each target, what was reached, and "met", "MISSED" or, with None, "not measured"."""
    judged: list[tuple[Target, float | None, str]] = []
    for target in TARGETS:
        try:
            reached = target.reach(run)
        except (KeyError, StatisticsError):  # nothing to compare with
            judged.append((target, None, "not measured"))
        else:
            judged.append((target, reached, "met" if target.is_met(reached) else "MISSED"))
    return judged
