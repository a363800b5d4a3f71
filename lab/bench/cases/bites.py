"""One big batch, sent by a single call, taken and settled by sixteen consumers ten messages at a time."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import QUEUE
from lab.bench.stage import Experiment, Stage

CASE = "bites"
CLIENTS = 16
BITE = 10


def experiments() -> tuple[Experiment, ...]:
    return (Experiment((CASE,), _run),)


def _run(stage: Stage, _: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(min(2, stage.plan.rounds)):
        database.create_queue()
        database.fill(f"fill('{QUEUE}', {stage.plan.bites}, {stage.plan.bites})")
        database.calm()
        stage.load(
            CASE,
            number,
            contestant,
            scripts.take(contestant, BITE),
            messages=BITE,
            clients=CLIENTS,
            sending=False,
            seconds=stage.plan.bites_seconds,
        )
        database.drop_queue()
        database.calm()
