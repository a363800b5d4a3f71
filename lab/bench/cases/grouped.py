"""Taking one message in the order of its group, from many groups."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench.contestants import CALLS, LEASE_SECONDS, QUEUE, UPSTREAM
from lab.bench.plan import Plan
from lab.bench.stage import Experiment, Stage

FUNCTIONS = ("read_grouped", "read_grouped_rr", "read_grouped_head")


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    manners = {
        "batched": _grouped("batched", 1000),
        "singles": _grouped("singles", 1),
        "half-settled": _grouped("half-settled", 1000, f"settle_half('{QUEUE}')"),
    }
    return tuple(experiment for manner, experiment in manners.items() if manner in plan.manners)


def _grouped(manner: str, at_once: int, *after: str) -> Experiment:
    functions = {f"grouped/{function}/{manner}": function for function in FUNCTIONS}

    def run(stage: Stage, cases: Sequence[str]) -> None:
        plan = stage.plan
        filling = f"fill('{QUEUE}', {plan.grouped}, {at_once}, groups => {plan.groups})"
        with stage.backlog(f"grouped/{manner}", filling, *after):
            for case in cases:
                statement = f"select * from pgmq.{functions[case]}('{QUEUE}', {LEASE_SECONDS}, 1)"
                stage.latency(case, {UPSTREAM: statement, CALLS: statement}, rows=1)

    return Experiment(tuple(functions), run)
