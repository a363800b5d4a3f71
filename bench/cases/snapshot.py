"""The whole cycle while a snapshot is held open elsewhere, and without it, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from bench import scripts
from bench.contestants import NATIVE, Contestant
from bench.plan import Plan
from bench.stage import Experiment, Stage

BATCH = 100
CLIENTS = 2


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return tuple(
        windowed(
            f"snapshot/{manner}",
            held=manner == "held",
            windows=(count, plan.held_window_seconds),
            batch=BATCH,
        )
        for manner, count in (("held", plan.held_windows), ("free", plan.free_windows))
        if count
    )


def windowed(case: str, *, held: bool, windows: tuple[int, int], batch: int, groups: int = 0) -> Experiment:
    """Make an experiment that runs each contestant once, all windows. The last window's rate counts."""

    def script_of(contestant: Contestant) -> str:
        return scripts.grouped_cycle(contestant, groups) if groups else scripts.cycle(contestant, batch)

    def run(stage: Stage, _: Sequence[str]) -> None:
        for number, contestant, database in stage.rounds(1):
            if groups and contestant.name == NATIVE:  # takes no groups in order without a policy
                continue
            database.create_queue()
            database.calm()
            with database.held_snapshot() if held else nullcontext():
                stage.load(
                    case,
                    number,
                    contestant,
                    script_of(contestant),
                    messages=batch,
                    clients=CLIENTS,
                    windows=windows,
                )
            database.drop_queue()
            database.calm()

    return Experiment((case,), run)
