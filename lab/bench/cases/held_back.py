"""Receiving from a queue that orders or limits, beside the same messages in one that does not."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import NATIVE, QUEUE
from lab.bench.stage import Experiment, Stage

POLICIES = {
    "free": "{}",
    "ordered": '{"ordered": true}',
    "rate": '{"rate_limit": 10000000}',
    "in-flight": '{"max_in_flight": 100000}',
    "in-flight-per-group": '{"max_in_flight_per_group": 1000}',
}
CLIENTS = 8
BATCH = 100


def experiments() -> tuple[Experiment, ...]:
    return (Experiment(tuple(f"held-back/{name}" for name in POLICIES), _run),)


def _run(stage: Stage, cases: Sequence[str]) -> None:
    """Take and settle half of a backlog of skewed groups: at its end only the long ones would be left."""
    for number, contestant, database in stage.rounds(stage.plan.rounds):
        if contestant.name != NATIVE:
            continue
        for name, policy in POLICIES.items():
            if f"held-back/{name}" not in cases:
                continue
            database.create_queue()
            database.fill(f"fill_skewed('{QUEUE}', {stage.plan.skewed}, {stage.plan.skewed_groups})")
            database.fill(f"set_policy('{QUEUE}', '{policy}')")
            database.calm()
            stage.load(
                f"held-back/{name}",
                number,
                contestant,
                scripts.take(contestant, BATCH),
                messages=BATCH,
                clients=CLIENTS,
                sending=False,
                transactions=stage.plan.skewed // BATCH // CLIENTS // 2,
            )
            database.drop_queue()
            database.calm()
