"""What our own cases must come to beside each other: what a limit, a failure or a backlog may cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.bench.contestants import NATIVE
from lab.bench.results import RATE, Summary


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case beside another: its rate at least `limit` times the other's, or its time at most."""

    case: str
    beside: str
    limit: float

    def is_met(self, reached: float, unit: str) -> bool:
        """Judge: more is better for rates, less for times."""
        return reached >= self.limit if unit == RATE else reached <= self.limit


@dataclass(frozen=True, slots=True)
class Compared:
    """What came out."""

    comparison: Comparison
    reached: float
    is_met: bool


MANNERS = ("", "/singles", "/half-settled")

COMPARISONS: tuple[Comparison, ...] = (
    Comparison("held-back/ordered", "held-back/free", 0.5),
    *(
        Comparison(f"held-back/{name}", "held-back/free", 0.9)
        for name in ("rate", "in-flight", "in-flight-per-group")
    ),
    # A rate of 0.7 of the dense queue's.
    Comparison("every-case/drain/half-gone", "every-case/drain/dense", 1 / 0.7),
    Comparison("wake/somebody-waits", "wake/nobody-waits", 0.95),
    *(
        Comparison(f"aged/batch-{batch}/clients-16", f"aged/batch-{batch}/clients-16/new", 0.85)
        for batch in (1, 100)
    ),
    *(
        comparison
        for manner in MANNERS
        for comparison in (
            Comparison(f"ordered/behind-blocked{manner}", f"ordered/free{manner}", 1.3),
            Comparison(f"ordered/groups-100000{manner}", f"ordered/groups-1000{manner}", 1.5),
            *(
                Comparison(f"delivery/{call}/batch-{batch}{manner}", f"delivery/ack/batch-{batch}{manner}", 3)
                for batch in (1, 1000)
                for call in ("nack", "reject")
            ),
            Comparison(f"delivery/receive-beside-backoff{manner}", f"delivery/receive{manner}", 1.3),
        )
    ),
)


def compare(summaries: Sequence[Summary]) -> list[Compared]:
    """Judge every comparison of which both cases were measured."""
    ours = {summary.case: summary for summary in summaries if summary.contestant == NATIVE}
    compared = []
    for comparison in COMPARISONS:
        if comparison.case in ours and comparison.beside in ours and ours[comparison.beside].value:
            reached = ours[comparison.case].value / ours[comparison.beside].value
            compared.append(
                Compared(comparison, reached, comparison.is_met(reached, ours[comparison.case].unit))
            )
    return compared
