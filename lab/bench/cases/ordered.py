"""An ordered receive beside one blocked group with a million messages behind it, and from very many groups.

Each also with messages that were sent one at a time, and with those after a random half was settled singly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from lab.bench import results
from lab.bench.contestants import LEASE_SECONDS, NATIVE, QUEUE, SPANMQ_DATABASE
from lab.bench.database import Database, Probe
from lab.bench.plan import Plan
from lab.bench.results import LATENCY, Measurement
from lab.bench.stage import Experiment, Stage

_Fill = Callable[[Plan, Database, str], None]

TAKEN = 10
FEW_GROUPS = 1_000
MANY_GROUPS = 100_000
# How the messages came about: what a case's name ends with; whether they were sent singly, and half has gone.
MANNERS = (("", False, False), ("/singles", True, False), ("/half-settled", False, True))
_ORDERED = f"set_policy('{QUEUE}', '{{\"ordered\": true}}')"
_RECEIVE = f"select count(*) from spanmq.receive('{QUEUE}', {{}}, {LEASE_SECONDS})"


def experiments(plan: Plan) -> tuple[Experiment, ...]:
    return tuple(
        experiment
        for suffix, singly, half in MANNERS
        if not suffix or suffix[1:] in plan.manners
        for experiment in (_blocked(suffix, singly, half), _many(suffix, singly, half))
    )


def _blocked(suffix: str, singly: bool, half: bool) -> Experiment:
    """Compare a receive from free groups with one that has a blocked group's backlog in front."""
    names = (f"ordered/free{suffix}", f"ordered/behind-blocked{suffix}")

    def fill(plan: Plan, database: Database, name: str) -> None:
        if name == names[1]:
            # Singly sent they take a while: a quarter of them.
            backlog = plan.backlog // (4 if singly else 1)
            database.fill(f"fill('{QUEUE}', {backlog}, {1 if singly else 1000}, groups => 1)")
            if half:
                database.fill(f"settle_half('{QUEUE}')")
            database.fill(_ORDERED)
            database.execute(_RECEIVE.format(1))
        # Of so many groups hardly a message is of the blocked one.
        _fill(database, plan.skewed, FEW_GROUPS, singly=singly, half=False)
        database.fill(_ORDERED)

    return _compared(names, fill)


def _many(suffix: str, singly: bool, half: bool) -> Experiment:
    """Compare a receive from a thousand groups with one from a hundred thousand."""
    names = (f"ordered/groups-{FEW_GROUPS}{suffix}", f"ordered/groups-{MANY_GROUPS}{suffix}")

    def fill(plan: Plan, database: Database, name: str) -> None:
        groups = FEW_GROUPS if name == names[0] else MANY_GROUPS
        _fill(database, 2 * plan.skewed, groups, singly=singly, half=half)
        database.fill(_ORDERED)

    return _compared(names, fill)


def _fill(database: Database, quantity: int, groups: int, *, singly: bool, half: bool) -> None:
    database.fill(f"fill('{QUEUE}', {quantity}, {1 if singly else 1000}, groups => {groups})")
    if half:
        database.fill(f"settle_half('{QUEUE}')")


def _compared(names: tuple[str, str], fill: _Fill) -> Experiment:
    def run(stage: Stage, _: Sequence[str]) -> None:
        database = stage.databases.get(SPANMQ_DATABASE)
        if database is None:
            return
        for name in names:
            database.create_queue()
            fill(stage.plan, database, name)
            database.calm()
            probe = Probe(database)
            try:
                first, *others = [
                    probe.call_ms(_RECEIVE.format(TAKEN), rows=1) for _ in range(stage.plan.calls + 1)
                ]
            finally:
                probe.close()
                database.drop_queue()
            details = {results.FIRST_CALL_MS: first, results.SLOWEST_MS: max(others)}
            stage.record(Measurement(name, NATIVE, 1, median(others), LATENCY, details))

    return Experiment(names, run)
