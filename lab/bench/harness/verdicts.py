"""What a queue must keep under a pinned snapshot, and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

# Shares of the rate, times the clean phase's, and what a job may leave for as long as the snapshot is held: three
# versions of its state, and its message with those of the indexes.
COMPLETED_SHARE = 0.99
P99_FACTOR = 2.0
DEAD_ROWS_A_JOB = 3.0
DISK_BYTES_A_JOB = 3_000.0
# Of what came with the snapshot, this share may stay: the space of rows is used again, and not given back. A segment of
# the log goes as a whole, when it is full.
LEFT_SHARE = 0.25
SEGMENTS_BYTES = 64e6
BACK_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen of a queue at a time: jobs done until then, their 99th percentile, dead rows, and bytes on disk."""

    at: float
    done: float
    p99_ms: float
    dead_rows: float
    disk_bytes: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was reached of a target; `is_met` says whether that is enough."""

    name: str
    reached: float
    target: float
    is_met: bool


def p99_of(looks: Sequence[Look]) -> float:
    """Return the 99th percentile of a phase: the median of its windows'."""
    return median(look.p99_ms for look in looks)


def back_after(clean: Sequence[Look], pinned: Sequence[Look], after: Sequence[Look]) -> float | None:
    """Return how many seconds after the snapshot all was as it was before; None: never, as far as was seen.

    `clean` and `pinned` are what was seen before and under it.
    """
    before, last = clean[-1], pinned[-1]
    # Between two runs of autovacuum they grow.
    dead_before = max(look.dead_rows for look in clean)
    dead_most = dead_before + LEFT_SHARE * max(0.0, last.dead_rows - dead_before)
    disk_grown = max(0.0, last.disk_bytes - before.disk_bytes)
    disk_most = before.disk_bytes + SEGMENTS_BYTES + LEFT_SHARE * disk_grown
    p99_most = P99_FACTOR * p99_of(clean)
    since = None
    for look in after:
        is_back = look.dead_rows <= dead_most and look.disk_bytes <= disk_most and look.p99_ms <= p99_most
        since = (look.at if since is None else since) if is_back else None
    return None if since is None else since - last.at


def verdicts(
    rate: float, clean: Sequence[Look], pinned: Sequence[Look], after: Sequence[Look]
) -> list[Verdict]:
    """Judge a run at a rate; the last look at the clean phase is the first one of the snapshot, and so on."""
    first, last = clean[-1], pinned[-1]
    jobs = last.done - first.done
    completed = jobs / (rate * (last.at - first.at))
    slower = p99_of(pinned) / max(p99_of(clean), 1.0)
    # Jobs that nobody has done leave nothing.
    dead, disk = (
        (now - before) / max(jobs, 1.0)
        for now, before in ((last.dead_rows, first.dead_rows), (last.disk_bytes, first.disk_bytes))
    )
    back = back_after(clean, pinned, after)
    return [
        Verdict("completed, of the rate", completed, COMPLETED_SHARE, completed >= COMPLETED_SHARE),
        Verdict("99th percentile, to the clean phase's", slower, P99_FACTOR, slower <= P99_FACTOR),
        Verdict("dead rows a job", dead, DEAD_ROWS_A_JOB, dead <= DEAD_ROWS_A_JOB),
        Verdict("bytes on disk a job", disk, DISK_BYTES_A_JOB, disk <= DISK_BYTES_A_JOB),
        Verdict(
            "seconds until all was back",
            float("inf") if back is None else back,
            BACK_SECONDS,
            back is not None and back <= BACK_SECONDS,
        ),
    ]
