"""How large a queue's state stays for an hour at a fixed rate, alone and behind a million messages that wait."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lab.bench import results, scripts
from lab.bench.contestants import CALLS, QUEUE, Contestant
from lab.bench.database import Database
from lab.bench.plan import Plan
from lab.bench.results import STATE, Measurement
from lab.bench.stage import Experiment, Stage, window_ends

BATCH = 10
RUNS_PER_SECOND = 100
CLIENTS = 2
# Of the first windows: until autovacuum has a pace.
SETTLING_SHARE = 0.2


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return tuple(
        _experiment(case, waiting)
        for case, waiting in (("soak/size/empty", 0), ("soak/size/behind-a-million", plan.backlog))
    )


def _experiment(case: str, waiting: int) -> Experiment:
    def run(stage: Stage, _: Sequence[str]) -> None:
        # The calls by PGMQ's names leave what the native ones do.
        contestants = [contestant for contestant in stage.contestants if contestant.name != CALLS]
        with ThreadPoolExecutor(len(contestants)) as pool:
            for measured in [pool.submit(_measure, stage, case, waiting, player) for player in contestants]:
                measured.result()

    return Experiment((case,), run)


def _measure(stage: Stage, case: str, waiting: int, contestant: Contestant) -> None:
    database = stage.databases[contestant.database]
    windows = (stage.plan.soak_windows, stage.plan.soak_window_seconds)
    database.create_queue()
    if waiting:
        database.fill(f"fill('{QUEUE}', {waiting}, 1000)")
    megabytes: list[float] = []
    sampler = threading.Thread(target=_sample, args=(database, windows, megabytes), name="sampler")
    sampler.start()
    stage.load(
        case,
        1,
        contestant,
        scripts.cycle(contestant, BATCH),
        messages=BATCH,
        clients=CLIENTS,
        windows=windows,
        runs_per_second=RUNS_PER_SECOND,
    )
    sampler.join()
    settled = megabytes[round(len(megabytes) * SETTLING_SHARE) :]
    details = {results.LAST_TO_FIRST: max(settled[1:]) / settled[0]}
    measurement = Measurement(
        f"{case}/state", contestant.name, 1, settled[-1], STATE, details, tuple(megabytes)
    )
    stage.record(measurement)
    database.drop_queue()


def _sample(database: Database, windows: tuple[int, int], megabytes: list[float]) -> None:
    """Note the size of the state at the end of each window."""
    megabytes.extend(database.state_bytes() / 1e6 for _ in window_ends(windows))
