"""A queue with a subscription beside one without: what a send costs, and a claim of either and of itself."""

from __future__ import annotations

from collections.abc import Sequence

from lab.bench import scripts
from lab.bench.contestants import NATIVE, QUEUE
from lab.bench.database import Database
from lab.bench.results import WAL_BYTES
from lab.bench.stage import Experiment, Stage

FOLLOWER = f"{QUEUE}_follower"
BATCHES = (1, 100)
CLIENTS = 4
SENDS = tuple(
    f"subscription/send/batch-{batch}/{kind}" for batch in BATCHES for kind in ("alone", "followed")
)
CLAIMS = tuple(f"subscription/claim/{kind}" for kind in ("alone", "followed", "follower"))


def experiments() -> tuple[Experiment, ...]:
    return (Experiment(SENDS, _send), Experiment(CLAIMS, _claim))


def _send(stage: Stage, cases: Sequence[str]) -> None:
    for number, contestant, database in stage.rounds(stage.plan.rounds):
        if contestant.name != NATIVE:
            continue
        for case in cases:
            batch = int(case.split("/")[2].removeprefix("batch-"))
            _set_up(database, is_followed=case.endswith("followed"))
            stage.load(
                case,
                number,
                contestant,
                scripts.send(batch),
                messages=batch,
                clients=CLIENTS,
                settling=False,
                seconds=stage.plan.send_seconds,
            )
            _tear_down(database)
    for batch in BATCHES:
        _compare(stage, f"subscription/send/batch-{batch}/followed", f"subscription/send/batch-{batch}/alone")


def _claim(stage: Stage, cases: Sequence[str]) -> None:
    """Take and settle half of a backlog, a hundred at a time: each take is a full one."""
    batch = 100
    for number, contestant, database in stage.rounds(stage.plan.rounds):
        if contestant.name != NATIVE:
            continue
        for case in cases:
            is_follower = case.endswith("follower")
            _set_up(database, is_followed=not case.endswith("alone"))
            database.fill(f"fill('{QUEUE}', {stage.plan.skewed}, {batch})")
            database.calm()
            script = scripts.take(contestant, batch)
            stage.load(
                case,
                number,
                contestant,
                script.replace(f"'{QUEUE}'", f"'{FOLLOWER}'") if is_follower else script,
                messages=batch,
                clients=CLIENTS,
                # The queue's own count says nothing of what its follower settles: the takes do.
                sending=is_follower,
                settling=not is_follower,
                transactions=stage.plan.skewed // batch // CLIENTS // 2,
            )
            _tear_down(database)
    for kind in ("followed", "follower"):
        _compare(stage, f"subscription/claim/{kind}", "subscription/claim/alone")


def _set_up(database: Database, *, is_followed: bool) -> None:
    _tear_down(database)
    database.create_queue()
    if is_followed:
        database.execute(f"select spanmq.create_subscription('{FOLLOWER}', '{QUEUE}')")
    database.calm()


def _tear_down(database: Database) -> None:
    if database.number(f"select count(*) from pgmq.list_queues() where queue_name = '{FOLLOWER}'"):
        database.execute(f"select pgmq.drop_queue('{FOLLOWER}')")
    database.drop_queue()
    database.calm()


def _compare(stage: Stage, case: str, control: str) -> None:
    """Note the ratio of the medians, and of the WAL a message."""
    one, other = (
        sorted(
            (measurement.value, measurement.details[WAL_BYTES])
            for measurement in stage.measurements
            if measurement.case == name
        )
        for name in (case, control)
    )
    if one and other:
        (rate, wal), (rate_alone, wal_alone) = one[len(one) // 2], other[len(other) // 2]
        stage.note(f"{case}: {rate / rate_alone:.2f} of the rate alone, {wal / wal_alone:.2f} of its WAL")
