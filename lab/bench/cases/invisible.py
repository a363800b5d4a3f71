"""Taking one message that stands behind many invisible ones."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench.contestants import QUEUE
from lab.bench.database import Database
from lab.bench.plan import Plan
from lab.bench.stage import Experiment, Stage

_DAY_SECONDS = 86_400
_LEASED_AT_ONCE = 10_000


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    lease_all = f"lease_all('{QUEUE}', {_LEASED_AT_ONCE})"
    manners = {
        "leased": _invisible("leased", 1000, 0, lease_all),
        "delayed": _invisible("delayed", 1000, _DAY_SECONDS),
        "singles": _invisible("singles", 1, 0, lease_all),
        "half-settled": _invisible("half-settled", 1000, 0, lease_all, f"settle_half('{QUEUE}')"),
    }
    return tuple(experiment for manner, experiment in manners.items() if manner in plan.manners)


def _invisible(manner: str, at_once: int, delay: int, *after: str) -> Experiment:
    case = f"invisible/{manner}"

    def run(stage: Stage, _: Sequence[str]) -> None:
        visible = len(stage.contestants) * (stage.plan.calls + 1)
        fillings = (
            f"fill('{QUEUE}', {stage.plan.invisible}, {at_once}, {delay})",
            *after,
            f"fill('{QUEUE}', {visible}, 1)",
        )
        with stage.backlog(case, *fillings):
            # As beside a load all the time: what is leased in front is set aside, 50,000 at a time.
            stage.everywhere(Database.maintain)
            statements = {
                contestant.name: f"select {', '.join(contestant.columns)} from {contestant.receive(1)}"
                for contestant in stage.contestants
            }
            stage.latency(case, statements, rows=1)

    return Experiment((case,), run)
