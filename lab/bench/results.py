"""What was measured, and what it comes to: medians over the rounds, ratios to upstream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from lab.bench.contestants import UPSTREAM

RATE = "messages/s"
LATENCY = "ms"
STATE = "MB of state"
MEMORY = "MB of memory"
DEADLOCKS = "deadlocks in 100,000 transactions"

# The words for what stands beside a value (`details`).
PROCESSOR_US = "processor_us_per_message"  # of the server
WAL_BYTES = "wal_bytes_per_message"
DEAD_TUPLES = "dead_tuples"
DEAD_ROWS = "dead_rows_per_message"
STORED_BYTES = "bytes"
GENERATOR_SHARE = "generator_share"
CYCLE_MS = "cycle_ms"
FIRST_WINDOW = "first_window"
LAST_TO_FIRST = "last_to_first"
SETTLED_SHARE = "settled_share"
FIRST_CALL_MS = "first_call_ms"
SLOWEST_MS = "slowest_ms"
MESSAGES_PER_TAKE = "messages_per_take"
DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contestant, one case, one round."""

    case: str
    contestant: str
    round: int
    value: float
    unit: str  # RATE or LATENCY
    details: Mapping[str, float] = field(default_factory=dict)
    windows: tuple[float, ...] = ()  # messages a second, window by window


@dataclass(frozen=True, slots=True)
class Summary:
    """One contestant in one case, over all rounds."""

    case: str
    contestant: str
    rounds: int
    value: float  # the median
    lowest: float
    highest: float
    unit: str
    ratio: float  # how many times better than upstream; not a number when upstream was not measured
    processor_ratio: float  # upstream's processor time as a multiple of this one's
    wal_ratio: float  # WAL bytes a message as a share of upstream's
    details: Mapping[str, float]  # medians
    windows: tuple[float, ...]  # medians


def summarize(measurements: Sequence[Measurement]) -> list[Summary]:
    """Return one summary per case and contestant, in the order in which they were first measured."""
    grouped: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in measurements:
        grouped.setdefault((measurement.case, measurement.contestant), []).append(measurement)
    return [_summary(rounds, grouped.get((case, UPSTREAM), [])) for (case, _), rounds in grouped.items()]


def times_better(value: float, upstream: float, unit: str) -> float:
    """Compare two values: above 1 is better than upstream, for rates and for latencies."""
    over, under = (upstream, value) if unit == LATENCY else (value, upstream)
    return over / under if under else math.nan


def _summary(rounds: Sequence[Measurement], upstream: Sequence[Measurement]) -> Summary:
    first = rounds[0]
    values = [measurement.value for measurement in rounds]
    value = median(values)
    details = _medians_of_details(rounds)
    beside = _medians_of_details(upstream)
    upstream_wal = beside.get(WAL_BYTES, math.nan)
    return Summary(
        case=first.case,
        contestant=first.contestant,
        rounds=len(rounds),
        value=value,
        lowest=min(values),
        highest=max(values),
        unit=first.unit,
        ratio=times_better(value, median(m.value for m in upstream), first.unit) if upstream else math.nan,
        processor_ratio=times_better(
            details.get(PROCESSOR_US, math.nan), beside.get(PROCESSOR_US, math.nan), LATENCY
        ),
        wal_ratio=details.get(WAL_BYTES, math.nan) / upstream_wal if upstream_wal else math.nan,
        details=details,
        windows=tuple(median(window) for window in zip(*(m.windows for m in rounds), strict=False)),
    )


def _medians_of_details(rounds: Sequence[Measurement]) -> dict[str, float]:
    names = dict.fromkeys(name for measurement in rounds for name in measurement.details)
    return {name: median(m.details[name] for m in rounds if name in m.details) for name in names}
