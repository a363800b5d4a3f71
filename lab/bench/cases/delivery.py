"""What failing costs: nacks and dead letters beside acks, and a receive beside a million in backoff.

Each also with messages that were sent one at a time, and with those after a random half was settled singly.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from lab.bench import results
from lab.bench.contestants import LEASE_SECONDS, NATIVE, QUEUE, SPANMQ_DATABASE
from lab.bench.database import Database, Probe
from lab.bench.plan import Plan
from lab.bench.results import LATENCY, Measurement
from lab.bench.stage import Experiment, Stage

BATCHES = (1, 1000)
# How the messages came about, as a plan calls it: what a case's name ends with; whether they were sent
# singly, and half has gone.
MANNERS = {
    "batched": ("", False, False),
    "singles": ("/singles", True, False),
    "half-settled": ("/half-settled", True, True),
}
_HELD = f"'{QUEUE}', current_setting('bench.lease')::bigint, current_setting('bench.ids')::bigint[]"
_REASON = "error => 'connection refused', error_class => 'ConnectionError', worker => 'bench'"
# A category is named, as a worker names it; the rules are looked at only without one.
CALLS = {
    "ack": f"select count(*) from spanmq.ack({_HELD})",
    "nack": f"select count(*) from spanmq.nack({_HELD}, category => 'DEPENDENCY', {_REASON})",
    "reject": f"select count(*) from spanmq.reject({_HELD}, category => 'PERMANENT', {_REASON})",
}


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    manners = [manner for name, manner in MANNERS.items() if name in plan.manners]
    return (
        *(_settle(batch, *manner) for batch in BATCHES for manner in manners),
        *(_receive(*manner) for manner in manners),
    )


def _fill(database: Database, quantity: int, at_once: int, *, singly: bool, half: bool) -> None:
    """Leave so many messages in the queue."""
    database.fill(f"fill('{QUEUE}', {quantity * (1 + half) + 2000 * half}, {1 if singly else at_once})")
    if half:
        database.fill(f"settle_half('{QUEUE}')")


def _settle(batch: int, manner: str, singly: bool, half: bool) -> Experiment:
    cases = tuple(f"delivery/{name}/batch-{batch}{manner}" for name in CALLS)
    take = (
        "select set_config('bench.lease', min(lease_id)::text, false),"
        " set_config('bench.ids', array_agg(msg_id order by random())::text, false)"
        f" from spanmq.receive('{QUEUE}', {batch}, {LEASE_SECONDS})"
    )

    def run(stage: Stage, _: Sequence[str]) -> None:
        if (database := _ours(stage)) is None:
            return
        calls = stage.plan.calls * 2
        database.create_queue()
        _fill(database, batch * len(CALLS) * (calls + 1), max(batch, 10), singly=singly, half=half)
        probe = Probe(database)
        times: dict[str, list[float]] = {name: [] for name in CALLS}
        try:
            for _round in range(calls + 1):
                for name, call in CALLS.items():
                    probe.call_ms(take, rows=1)
                    times[name].append(probe.call_ms(call, rows=1))
        finally:
            probe.close()
            database.drop_queue()
        for case, measured in zip(cases, times.values(), strict=True):
            _record(stage, case, measured)

    return Experiment(cases, run)


def _receive(manner: str, singly: bool, half: bool) -> Experiment:
    names = ("delivery/receive" + manner, "delivery/receive-beside-backoff" + manner)

    def run(stage: Stage, cases: Sequence[str]) -> None:
        if (database := _ours(stage)) is None:
            return
        call = f"select count(*) from spanmq.receive('{QUEUE}', 10, {LEASE_SECONDS})"
        for case in names:
            database.create_queue()
            if "backoff" in case:
                # Singly sent they take a while: a quarter of them, and of those half in one manner.
                _fill(
                    database,
                    stage.plan.backoff // (4 if singly else 1) // (1 + half),
                    1000,
                    singly=singly,
                    half=half,
                )
                database.fill(f"nack_all('{QUEUE}', 1000)")
            _fill(
                database, 10 * (stage.plan.calls + 1), 10, singly=singly, half=half and "backoff" not in case
            )
            database.calm()
            probe = Probe(database)
            try:
                measured = [probe.call_ms(call, rows=1) for _ in range(stage.plan.calls + 1)]
            finally:
                probe.close()
                database.drop_queue()
            if case in cases:
                _record(stage, case, measured)

    return Experiment(names, run)


def _record(stage: Stage, case: str, measured: Sequence[float]) -> None:
    first, *others = measured
    details = {results.FIRST_CALL_MS: first, results.SLOWEST_MS: max(others)}
    stage.record(Measurement(case, NATIVE, 1, median(others), LATENCY, details))


def _ours(stage: Stage) -> Database | None:
    """Return our database, unless only upstream competes: these calls are ours alone."""
    return stage.databases.get(SPANMQ_DATABASE)
