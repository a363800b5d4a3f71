"""What must be reached, and what is aimed at: ratios to upstream in one run, unless said otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from bench.contestants import CALLS, NATIVE
from bench.plan import Plan, judges
from bench.results import LAST_TO_FIRST, Summary


class Measure(StrEnum):
    """Which number of a summary a target is about."""

    RATIO = "times upstream"
    LAST_TO_FIRST = "last window to first"
    WAL = "WAL to upstream"

    def of(self, summary: Summary) -> float:
        """Read it off a summary; not a number when it was not measured."""
        if self is Measure.RATIO:
            return summary.ratio
        return summary.wal_ratio if self is Measure.WAL else summary.details.get(LAST_TO_FIRST, math.nan)


class Verdict(StrEnum):
    """How a target was met."""

    AIM = "aim"
    FLOOR = "floor"
    BELOW = "BELOW"
    UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table of targets. Less is better for WAL, more for everything else."""

    case: str
    contestant: str
    floor: float
    aim: float
    measure: Measure = Measure.RATIO

    def verdict(self, reached: float) -> Verdict:
        """Judge what was reached."""
        if math.isnan(reached):
            return Verdict.UNKNOWN
        sign = -1 if self.measure is Measure.WAL else 1
        if sign * reached >= sign * self.aim:
            return Verdict.AIM
        return Verdict.FLOOR if sign * reached >= sign * self.floor else Verdict.BELOW


def _cycle(contestant: str, batch: int, clients: int, floor: float, aim: float) -> Target:
    return Target(f"cycle/batch-{batch}/clients-{clients}", contestant, floor, aim)


def _deep(prefix: str, contestants: tuple[str, ...], floor: float) -> tuple[Target, ...]:
    """Return the targets of depth: they hold however the backlog came about."""
    manners = ("leased", "delayed") if prefix == "invisible" else ("batched",)
    return tuple(
        Target(f"{prefix}/{manner}", contestant, floor, 200)
        for manner in (*manners, "singles", "half-settled")
        for contestant in contestants
    )


TARGETS: tuple[Target, ...] = (
    _cycle(CALLS, 1, 1, 1.15, 1.4),
    _cycle(CALLS, 1, 16, 1.3, 1.5),
    *(_cycle(each, 1, clients, 1.1, 1.5) for clients in (64, 200) for each in (CALLS, NATIVE)),
    _cycle(CALLS, 10, 16, 1.35, 2),
    _cycle(CALLS, 100, 1, 2.3, 4),
    _cycle(CALLS, 100, 16, 2.8, 4),
    _cycle(CALLS, 1000, 1, 2.9, 5),
    _cycle(CALLS, 1000, 16, 4.6, 6),
    _cycle(NATIVE, 1, 16, 1.25, 2),
    _cycle(NATIVE, 100, 1, 2.4, 4),
    _cycle(NATIVE, 100, 16, 2.9, 6),
    _cycle(NATIVE, 1000, 1, 2.9, 6),
    _cycle(NATIVE, 1000, 16, 4.6, 8),
    Target("connection/batch-1/clients-4", CALLS, 0.8, 1.15),
    Target("settling/singles", NATIVE, 1, 2),
    Target("settling/workers", CALLS, 1 / 1.2, 1),
    *(Target(f"cycle/batch-100/clients-{clients}", NATIVE, 0.6, 0.4, Measure.WAL) for clients in (1, 4, 16)),
    *(
        target
        for case in (
            "snapshot/held/singles",
            "snapshot/held/half-settled",
            "snapshot/writer",
            "soak/batch-100",
            "soak/singles",
            "soak/groups",
            "soak/writer",
        )
        for target in (
            Target(case, NATIVE, 0.9, 0.98, Measure.LAST_TO_FIRST),
            Target(case, CALLS, 0.5, 0.9, Measure.LAST_TO_FIRST),
        )
    ),
    Target("snapshot/held", NATIVE, 27, 50),
    Target("snapshot/held", CALLS, 15, 20),
    Target("snapshot/held", NATIVE, 0.95, 0.98, Measure.LAST_TO_FIRST),
    Target("snapshot/held", CALLS, 0.6, 0.9, Measure.LAST_TO_FIRST),
    *_deep("invisible", (CALLS, NATIVE), 50),
    *_deep("grouped/read_grouped", (CALLS,), 100),
    *_deep("grouped/read_grouped_rr", (CALLS,), 100),
    *_deep("grouped/read_grouped_head", (CALLS,), 100),
    *_deep("metrics", (CALLS,), 30),
)


def targets_of(summary: Summary, plan: Plan) -> list[Target]:
    """Return the targets of a case and contestant, as far as this plan can judge them."""
    measured = (summary.case, summary.contestant)
    if not judges(plan, summary.case):
        return []
    return [target for target in TARGETS if (target.case, target.contestant) == measured]
