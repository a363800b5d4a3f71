"""Batches that are settled message by message: by one consumer, by workers that hold a transaction each, by many."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import NATIVE, QUEUE
from lab.bench.results import DEADLOCKS as UNIT
from lab.bench.results import Measurement
from lab.bench.stage import Experiment, Stage

SINGLES = "settling/singles"
WORKERS = "settling/workers"
DEADLOCKS = "settling/deadlocks"
BATCH = 100
CLIENTS = 10
BACKLOG = 400
WORK_SECONDS = 0.02
SETTLERS = 8
HELD = 20_000
SETTLINGS = 12_500  # of each client


def experiments() -> tuple[Experiment, ...]:
    return (
        Experiment((SINGLES,), _singles),
        Experiment((WORKERS,), _workers),
        Experiment((DEADLOCKS,), _deadlocks),
    )


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


def _deadlocks(stage: Stage, _: Sequence[str]) -> None:
    """Settle and hide random messages of many leased batches, one to four in a transaction."""
    for number, contestant, database in stage.rounds(1):
        if contestant.name == NATIVE:  # the same functions
            continue
        database.create_queue()
        database.fill(f"fill('{QUEUE}', {HELD}, {BATCH})")
        with database.connect() as connection:
            for _batch in range(HELD // BATCH):
                connection.execute(f"select count(*) from pgmq.read('{QUEUE}', 3600, {BATCH})")
        database.calm()
        load = stage.generator.run(
            database.dsn, scripts.settle_some(HELD), clients=SETTLERS, transactions=SETTLINGS, variables={}
        )
        failed = load.failed * 100_000 / (load.transactions + load.failed)
        stage.record(Measurement(DEADLOCKS, contestant.name, number, failed, UNIT))
        database.drop_queue()
