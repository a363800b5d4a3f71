"""A million messages in 10,000 groups: why one of them waits, and what a deploy would break of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lab.bench.contestants import NATIVE, QUEUE
from lab.bench.results import LATENCY, Measurement
from lab.bench.stage import Experiment, Stage

from spanmq.tasks import Tasks

MESSAGES = 1_000_000
GROUPS = 10_000
AT_ONCE = 1_000
LEASED = 500
ORDERED, PLAIN, CHECK = "million/explain-ordered", "million/explain-plain", "million/check"


def experiments() -> tuple[Experiment, ...]:
    return (Experiment((ORDERED, PLAIN, CHECK), _run),)


def _run(stage: Stage, cases: Sequence[str]) -> None:
    [database] = {
        stage.databases[contestant.database] for contestant in stage.contestants if contestant.name == NATIVE
    }
    database.create_queue()
    body = "jsonb_build_object('task', 'ship', 'args', jsonb_build_object('order', b))"
    bodies = f"array(select {body} from unnest(bench.bodies({AT_ONCE})) b)"
    with database.connect() as connection:
        connection.execute("select setseed(0.5)")
        for _ in range(MESSAGES // AT_ONCE):
            connection.execute(
                f"select pgmq.send_batch('{QUEUE}', {bodies}, bench.headers({AT_ONCE}, {GROUPS}))"
            )
        connection.execute(f"select spanmq.receive('{QUEUE}', {LEASED}, 600)")
    database.calm()
    statement = f"select * from spanmq.explain('{QUEUE}', {MESSAGES - 900})"
    if PLAIN in cases:
        stage.latency(PLAIN, {NATIVE: statement})
    if CHECK in cases:
        _check(stage, database.dsn)
    if ORDERED in cases:
        with database.connect() as connection:
            connection.execute(f"select spanmq.set_policy('{QUEUE}', '{{\"ordered\": true}}')")
        stage.latency(ORDERED, {NATIVE: statement})
    database.drop_queue()
    database.calm()


def _check(stage: Stage, dsn: str) -> None:
    tasks = Tasks(QUEUE, dsn=dsn)

    @tasks.task
    def ship(order: dict[str, Any]) -> None:
        """Do nothing: it is never run."""

    for number in range(stage.plan.rounds):
        began_at = time.perf_counter()
        [fits, *_] = tasks.check()
        took_ms = (time.perf_counter() - began_at) * 1000
        assert fits.verdict == "fits"
        stage.record(Measurement(CHECK, NATIVE, number + 1, took_ms, LATENCY, {}))
    tasks.close()
