"""What must be reached, and what is aimed at: ratios to upstream in one run, unless said otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from lab.bench.contestants import CALLS, NATIVE
from lab.bench.plan import Plan, judges
from lab.bench.results import DEAD_ROWS, LAST_TO_FIRST, Summary


class Measure(StrEnum):
    """Which number of a summary a target is about."""

    RATIO = "times upstream"
    LAST_TO_FIRST = "last window to first"
    WAL = "WAL to upstream"
    DEAD_ROWS = "dead rows a message"
    VALUE = "ms"

    def of(self, summary: Summary) -> float:
        """Read it off a summary; not a number when it was not measured."""
        if self is Measure.RATIO:
            return summary.ratio
        if self is Measure.WAL:
            return summary.wal_ratio
        if self is Measure.VALUE:
            return summary.value
        return summary.details.get(LAST_TO_FIRST if self is Measure.LAST_TO_FIRST else DEAD_ROWS, math.nan)

    @property
    def less_is_better(self) -> bool:
        """Return whether a small number is a good one."""
        return self in {Measure.WAL, Measure.DEAD_ROWS, Measure.VALUE}


class Verdict(StrEnum):
    """How a target was met."""

    AIM = "aim"
    FLOOR = "floor"
    BELOW = "BELOW"
    UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the table of targets."""

    case: str
    contestant: str
    floor: float
    aim: float
    measure: Measure = Measure.RATIO

    def verdict(self, reached: float) -> Verdict:
        """Judge what was reached."""
        if math.isnan(reached):
            return Verdict.UNKNOWN
        sign = -1 if self.measure.less_is_better else 1
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


def _every(
    name: str, floor: float, *contestants: str, measure: Measure = Measure.RATIO
) -> tuple[Target, ...]:
    """Return the targets of one of the cases of single calls."""
    return tuple(
        Target(f"every-case/{name}", contestant, floor, floor, measure)
        for contestant in contestants or (CALLS,)
    )


TARGETS: tuple[Target, ...] = (
    *_every("cycle/1", 1.5, CALLS, NATIVE),
    *_every("cycle/10", 1.4, CALLS, NATIVE),
    *_every("cycle/100", 1.7, CALLS, NATIVE),
    *_every("cycle/1000", 1.5, CALLS, NATIVE),
    *_every("cycle/new-queue", 1.4, CALLS, NATIVE),
    *_every("cycle/1", 0.96, measure=Measure.WAL),
    *_every("cycle/100", 0.7, measure=Measure.WAL),
    *(target for size in (1, 100) for target in _every(f"cycle/{size}", 2, measure=Measure.DEAD_ROWS)),
    *_every("cycle/single-sends", 1.5, CALLS, NATIVE),
    *_every("empty-read", 1, CALLS, NATIVE),
    *_every("single/delete", 2),
    *_every("single/delete", 1.5, NATIVE),
    *_every("single/archive", 1.3),
    *_every("single/set-vt", 1.4),
    *_every("single/extend", 1.5, NATIVE),
    *_every("scattered/leased", 1.3),
    *_every("scattered/unread", 1.2),
    *_every("scattered/deep", 1.3),
    # 1,000 messages at 50 us each; ten claims at 20 ms each.
    *_every("groups/ordered", 50, NATIVE, measure=Measure.VALUE),
    *_every("groups/blocked", 200, NATIVE, measure=Measure.VALUE),
    *(
        Target(f"million/{case}", NATIVE, ms, ms, Measure.VALUE)
        for case, ms in (("explain-ordered", 5), ("explain-plain", 5), ("check", 2_000))
    ),
    *_every("view/count", 0.6),
    *(target for name in ("max", "id") for target in _every(f"view/{name}", 0.1)),
    *_every("view/page", 0.3),
    *_every("view/update", 0.5),
    *_every("view/delete", 0.2),
    *_every("connection/first-cycle", 0.75),
    *_every("connection/cycle", 0.85),
    *_every("queue/create", 0.5),
    _cycle(CALLS, 1, 1, 1.15, 1.4),
    _cycle(CALLS, 1, 16, 1.3, 1.5),
    *(_cycle(contestant, 1, clients, 1.1, 1.5) for clients in (64, 200) for contestant in (CALLS, NATIVE)),
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
            "soak/batch-100/paced",
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
