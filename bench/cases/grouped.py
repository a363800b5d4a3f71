"""Taking one message in the order of its group, from many groups."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contestants import CALLS, LEASE_SECONDS, QUEUE, UPSTREAM
from bench.stage import Experiment, Stage

FUNCTIONS = ("read_grouped", "read_grouped_rr", "read_grouped_head")


def experiments() -> tuple[Experiment, ...]:
    return (_grouped("batched", 1000), _grouped("singles", 1), _grouped("half-settled", 1000, "settle_half"))


def _grouped(manner: str, at_once: int, after: str | None = None) -> Experiment:
    cases = {f"grouped/{function}/{manner}": function for function in FUNCTIONS}

    def run(stage: Stage, wanted: Sequence[str]) -> None:
        plan = stage.plan
        fillings = [f"fill('{QUEUE}', {plan.grouped}, {at_once}, groups => {plan.groups})"]
        fillings += [f"{after}('{QUEUE}')"] if after else []
        with stage.backlog(f"grouped/{manner}", *fillings):
            for case in wanted:
                statement = f"select * from pgmq.{cases[case]}('{QUEUE}', {LEASE_SECONDS}, 1)"
                stage.latency(case, {UPSTREAM: statement, CALLS: statement}, rows=1)

    return Experiment(tuple(cases), run)
