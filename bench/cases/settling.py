"""Batches that are settled message by message: by one consumer, and by workers that hold a transaction each."""

from __future__ import annotations

from collections.abc import Sequence

from bench import scripts
from bench.contestants import QUEUE
from bench.stage import Experiment, Stage

SINGLES = "settling/singles"
WORKERS = "settling/workers"
BATCH = 100
CLIENTS = 10
BACKLOG = 400
WORK_SECONDS = 0.02


def experiments() -> tuple[Experiment, ...]:
    return (Experiment((SINGLES,), _singles), Experiment((WORKERS,), _workers))


def _singles(stage: Stage, _: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(stage.plan.rounds):
        database.create_queue()
        database.calm()
        script = scripts.send(BATCH) + scripts.take_and_settle_singly(contestant, BATCH)
        stage.load(SINGLES, number, contestant, script, messages=BATCH, clients=1, seconds=stage.plan.seconds)
        database.drop_queue()


def _workers(stage: Stage, _: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(stage.plan.rounds):
        database.create_queue()
        database.fill(f"fill('{QUEUE}', {BACKLOG}, {BACKLOG})")
        database.calm()
        stage.load(
            WORKERS,
            number,
            contestant,
            scripts.work(contestant, WORK_SECONDS),
            messages=1,
            clients=CLIENTS,
            sending=False,
            transactions=BACKLOG // CLIENTS,
        )
        database.drop_queue()
