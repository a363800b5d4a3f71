"""A million messages waiting: what `metrics` costs, and the whole cycle in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import CALLS, QUEUE, UPSTREAM
from lab.bench.plan import Plan
from lab.bench.stage import Experiment, Stage

BATCH = 100
CLIENTS = 4
_ROUNDS = 2
# Of the backlog, taken by one run: four runs (two rounds, two contestants on one queue) must stay within what
# is left after a random half was settled.
_SHARE_OF_RUN = 16


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    manners = {
        "batched": _backlog("batched", 1000),
        "singles": _backlog("singles", 1),
        "half-settled": _backlog("half-settled", 1000, f"settle_half('{QUEUE}')"),
    }
    return tuple(experiment for manner, experiment in manners.items() if manner in plan.manners)


def _backlog(manner: str, at_once: int, *after: str) -> Experiment:
    metrics, depth = f"metrics/{manner}", f"depth/{manner}"
    before_maintain = f"{metrics}/before-maintain"

    def run(stage: Stage, cases: Sequence[str]) -> None:
        fillings = (f"fill('{QUEUE}', {stage.plan.backlog}, {at_once})", *after)
        with stage.backlog(f"backlog/{manner}", *fillings):
            statement = f"select * from pgmq.metrics('{QUEUE}')"
            statements = {UPSTREAM: statement, CALLS: statement}
            if before_maintain in cases:
                stage.latency(before_maintain, statements, rows=1)
            for database in stage.databases.values():
                if database.ours:
                    stage.note(f"maintain() had {database.maintain()} steps to do")
                    database.calm()
            if metrics in cases:
                stage.latency(metrics, statements, rows=1)
            if depth in cases:
                _cycles(stage, depth)

    return Experiment((before_maintain, metrics, depth), run)


def _cycles(stage: Stage, case: str) -> None:
    transactions = max(1, stage.plan.backlog // _SHARE_OF_RUN // BATCH // CLIENTS)
    for number, contestant, database in stage.rounds(min(_ROUNDS, stage.plan.rounds)):
        stage.load(
            case,
            number,
            contestant,
            scripts.cycle(contestant, BATCH),
            messages=BATCH,
            clients=CLIENTS,
            transactions=transactions,
        )
        database.calm()
