"""The cases, in the order in which they run."""

from __future__ import annotations

from lab.bench.cases import (
    backlog,
    bites,
    cycle,
    delivery,
    every,
    grouped,
    held_back,
    invisible,
    many,
    million,
    ordered,
    settling,
    size,
    snapshot,
    soak,
    subscription,
    wake,
)
from lab.bench.plan import Plan
from lab.bench.stage import Experiment


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    """Return the experiments of a benchmark run."""
    return (
        *cycle.experiments(plan),
        *bites.experiments(),
        *settling.experiments(),
        *grouped.experiments(plan),
        *(beside_each_other(plan) if plan.beside else ()),
        *invisible.experiments(plan),
        *backlog.experiments(plan),
        *many.experiments(plan),
        *snapshot.experiments(plan),
    )


def beside_each_other(plan: Plan) -> tuple[Experiment, ...]:
    """Return those that take long, or in which only our own calls compete."""
    return (
        *every.experiments(),
        *delivery.experiments(plan),
        *ordered.experiments(plan),
        *held_back.experiments(),
        *subscription.experiments(),
        *million.experiments(),
        *wake.experiments(plan),
    )


def soak_experiments(plan: Plan) -> tuple[Experiment, ...]:
    """Return the experiments of a soak."""
    return (*soak.experiments(plan), *size.experiments(plan))
