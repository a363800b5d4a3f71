"""The course of a run over time: rates, backlog and latency in equal steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spanmq.simulate.story import Story

STEPS_MAX: Final = 120
STEP_MIN: Final = 0.1


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
