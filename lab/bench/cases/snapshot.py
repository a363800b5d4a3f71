"""The whole cycle while a snapshot is held open elsewhere, and without it, window by window."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from lab.bench import scripts
from lab.bench.contestants import NATIVE, QUEUE, Contestant
from lab.bench.plan import Plan
from lab.bench.stage import Experiment, Stage

BATCH = 100
CLIENTS = 2


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    held = (plan.held_windows, plan.held_window_seconds)
    free = (plan.free_windows, plan.held_window_seconds)
    half = (f"fill('{QUEUE}', {plan.skewed}, 1000)", f"settle_half('{QUEUE}')")
    experiments = [windowed("snapshot/held", held=True, windows=held, batch=BATCH)]
    if plan.free_windows:
        experiments.append(windowed("snapshot/free", held=False, windows=free, batch=BATCH))
    if "singles" in plan.manners:
        experiments.append(windowed("snapshot/held/singles", held=True, windows=held, batch=1))
    if "half-settled" in plan.manners:
        experiments.append(
            windowed("snapshot/held/half-settled", held=True, windows=held, batch=BATCH, fillings=half)
        )
    if plan.free_windows:
        experiments.append(windowed("snapshot/writer", held=True, writing=True, windows=held, batch=BATCH))
    return tuple(experiments)


def windowed(
    case: str,
    *,
    held: bool,
    windows: tuple[int, int],
    batch: int,
    groups: int = 0,
    fillings: Sequence[str] = (),
    writing: bool = False,
    runs_per_second: int = 0,
) -> Experiment:
    """Make an experiment that runs each contestant once, all windows. The last window's rate counts.

    `fillings` make a backlog in front, while the snapshot is held. writing: by a transaction that has written.
    runs_per_second: 0: as many as can be.
    """

    def script_of(contestant: Contestant) -> str:
        return scripts.grouped_cycle(contestant, groups) if groups else scripts.cycle(contestant, batch)

    def run(stage: Stage, _: Sequence[str]) -> None:
        for number, contestant, database in stage.rounds(1):
            if groups and contestant.name == NATIVE:  # takes no groups in order without a policy
                continue
            database.create_queue()
            database.calm()
            holding = database.open_writer() if writing else database.held_snapshot()
            with holding if held else nullcontext():
                for filling in fillings:
                    database.fill(filling)
                stage.load(
                    case,
                    number,
                    contestant,
                    script_of(contestant),
                    messages=batch,
                    clients=CLIENTS,
                    windows=windows,
                    runs_per_second=runs_per_second,
                )
            database.drop_queue()
            database.calm()

    return Experiment((case,), run)
