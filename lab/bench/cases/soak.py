"""What goes on for long: a snapshot, or a transaction that has written, held open; and mixed load."""

from __future__ import annotations

from lab.bench.cases import mixed
from lab.bench.cases.snapshot import windowed
from lab.bench.plan import Plan
from lab.bench.stage import Experiment


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    windows = (plan.soak_windows, plan.soak_window_seconds)
    return (
        windowed("soak/batch-100", held=True, windows=windows, batch=100),
        # At this rate of runs no disk sets the pace.
        windowed("soak/batch-100/paced", held=True, windows=windows, batch=100, runs_per_second=240),
        windowed("soak/singles", held=True, windows=windows, batch=1),
        windowed("soak/writer", held=True, writing=True, windows=windows, batch=100),
        windowed("soak/groups", held=True, windows=windows, batch=1, groups=plan.groups),
        mixed.experiment(),
    )
