"""The verdicts on a run under a pinned snapshot: each is missed by what it is about, and by nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from lab.bench.harness.verdicts import Look, back_after, verdicts

RATE = 100.0
CLEAN = [Look(at, RATE * at, 20.0, 1_000, 50e6) for at in (5.0, 10.0)]
PINNED = [Look(at, RATE * at, 30.0, 200 * at, 50e6 + 2e5 * at) for at in (15.0, 20.0, 110.0)]
AFTER = [
    Look(115.0, RATE * 115, 70.0, 22_000, 72e6),
    Look(120.0, RATE * 120, 25.0, 1_200, 51e6),
    Look(125.0, RATE * 125, 20.0, 1_100, 51e6),
]


def missed(clean: list[Look], pinned: list[Look], after: list[Look]) -> list[str]:
    return [each.name for each in verdicts(RATE, clean, pinned, after) if not each.is_met]


def test_run_that_meets_all_targets_is_back_when_all_is_as_before() -> None:
    assert missed(CLEAN, PINNED, AFTER) == []
    assert back_after(CLEAN, PINNED, AFTER) == 10.0


def last(**changes: float) -> Callable[[], tuple[list[Look], list[Look], list[Look]]]:
    """Return a run whose last look under the snapshot was another one."""
    return lambda: (CLEAN, [*PINNED[:-1], replace(PINNED[-1], **changes)], AFTER)


def slow() -> tuple[list[Look], list[Look], list[Look]]:
    return CLEAN, [replace(look, p99_ms=41.0) for look in PINNED], AFTER


def never_back(**changes: float) -> Callable[[], tuple[list[Look], list[Look], list[Look]]]:
    return lambda: (CLEAN, PINNED, [replace(look, **changes) for look in AFTER])


def late() -> tuple[list[Look], list[Look], list[Look]]:
    return CLEAN, PINNED, [AFTER[0], *(replace(look, at=look.at + 300) for look in AFTER[1:])]


def worse_again() -> tuple[list[Look], list[Look], list[Look]]:
    return CLEAN, PINNED, [AFTER[1], AFTER[2], AFTER[0]]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (last(done=RATE * 108), "completed, of the rate"),
        (slow, "99th percentile, to the clean phase's"),
        (last(dead_rows=32_000), "dead rows a job"),
        (last(disk_bytes=81e6), "bytes on disk a job"),
        (never_back(p99_ms=41.0), "seconds until all was back"),
        (never_back(dead_rows=7_000), "seconds until all was back"),
        (never_back(disk_bytes=120e6), "seconds until all was back"),
        (late, "seconds until all was back"),
        (worse_again, "seconds until all was back"),
    ],
)
def test_run_misses_the_target_that_it_does_not_reach(
    run: Callable[[], tuple[list[Look], list[Look], list[Look]]], name: str
) -> None:
    assert missed(*run()) == [name]
