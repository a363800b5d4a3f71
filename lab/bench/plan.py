"""How much of everything a run measures: the full plan, the quick one, and what the command line changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

ALL_BATCHES = (1, 10, 100, 1000)
ALL_CLIENTS = (1, 4, 16)


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and durations of one run. Everything that is not a size is the same in every plan."""

    title: str
    rounds: int
    seconds: int  # of a cycle: long enough for dead rows to weigh, as they do in a queue's daily life
    send_seconds: int
    cycles: tuple[tuple[int, int], ...]  # (batch, clients)
    client_cycles: tuple[tuple[int, int], ...]  # the same, with bodies and messages over the connection
    sends: tuple[tuple[int, int], ...]  # (batch, clients)
    held_windows: int
    held_window_seconds: int
    free_windows: int  # 0: no run without a snapshot
    manners: tuple[str, ...]  # how backlogs come about
    backlog: int
    backoff: int
    beside: bool  # also our own cases beside each other: failing, ordering, limiting, following, waking
    invisible: int
    grouped: int
    groups: int
    calls: int
    skewed: int
    skewed_groups: int
    bites: int
    bites_seconds: int
    soak_windows: int
    soak_window_seconds: int


FULL = Plan(
    title="full",
    rounds=3,
    seconds=15,
    send_seconds=3,
    cycles=(*((batch, clients) for batch in ALL_BATCHES for clients in ALL_CLIENTS), (1, 64), (1, 200)),
    client_cycles=((10, 16), (100, 1), (100, 16), (1000, 1), (1000, 16)),
    sends=tuple((batch, clients) for batch in ALL_BATCHES for clients in (1, 4)),
    held_windows=6,
    held_window_seconds=10,
    free_windows=6,
    manners=("batched", "leased", "delayed", "singles", "half-settled"),
    backlog=1_000_000,
    backoff=1_000_000,
    beside=True,
    invisible=400_000,
    grouped=50_000,
    groups=2_000,
    calls=15,
    skewed=100_000,
    skewed_groups=10_000,
    bites=300_000,
    bites_seconds=4,
    soak_windows=10,
    soak_window_seconds=60,
)

# The cycles that have a target, and backlogs of full size, but only those that are quick to make.
QUICK = replace(
    FULL,
    title="quick",
    rounds=1,
    seconds=1,
    send_seconds=1,
    cycles=((1, 1), (1, 16), (10, 16), (100, 1), (100, 16), (1000, 1), (1000, 16)),
    client_cycles=(),
    sends=((1, 1), (100, 1)),
    held_windows=3,
    held_window_seconds=2,
    free_windows=0,
    manners=("batched", "leased", "delayed"),
    beside=False,
    calls=3,
    bites=50_000,
    bites_seconds=1,
)


def judges(plan: Plan, case: str) -> bool:
    """Return whether this plan can judge a case by its target: a held snapshot takes a minute to hurt."""
    return plan.title != QUICK.title or not case.startswith("snapshot/")


def soaking(plan: Plan, minutes: float) -> Plan:
    """Spread a soak of that many minutes over the windows."""
    window_seconds = max(1, round(minutes * 60 / plan.soak_windows))
    return replace(plan, title=f"soak of {minutes:g} minutes", soak_window_seconds=window_seconds)


def selects(patterns: Sequence[str], case: str) -> bool:
    """Return whether a case is wanted: it matches a glob, or holds the text, or there is no pattern at all."""
    return not patterns or any(fnmatchcase(case, pattern) or pattern in case for pattern in patterns)
