"""The bench's judgement: each target can be missed, and none is met by a run that kept no order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from bench import simulation
from bench.simulation import Outcome
from tests.simulate.records import Log

from spanmq.simulate import Options, Report
from spanmq.simulate.audit import Audit
from spanmq.simulate.report import Latency, make_report

Runs = Callable[[Options], Report]
TO_POLLING, IDEAL = "spanmq to polling", "two keys a type"


def report(options: Options, **changes: Any) -> Report:
    """Make the report of a small run, and change what a case looks at."""
    log = Log()
    log.send(1, 1)
    log.write("workers_started")
    log.handle(1)
    log.stop()
    audit = Audit(options)
    for record in log.records:
        audit.add(record)
    made = make_report(audit, options, ending="complete", ended_at=log.records[-1]["at"])
    return replace(made, **changes)


class Simulated:
    """Gives reports instead of running anything."""

    is_quick = False
    rounds = 1

    def __init__(self, runs: Runs) -> None:
        self.asked: list[Options] = []
        self._runs = runs

    def run(self, options: Options) -> Report:
        self.asked.append(options)
        return self._runs(options)


def judged(case: Callable[[Any], Iterator[Outcome]], runs: Runs) -> dict[str, bool | None]:
    """Give the verdicts of a case; of several under one name the worst."""
    verdicts: dict[str, bool | None] = {}
    for outcome in case(Simulated(runs)):
        is_met = verdicts.get(outcome.case, True)
        verdicts[outcome.case] = is_met and outcome.is_met
    return verdicts


def boxed(ours: int, theirs: int, *, ending: str = "time", seconds: float = 60.0) -> Runs:
    """Let engines handle so many messages in their box."""

    def run(options: Options) -> Report:
        if options.is_polling:
            return report(options, handled=theirs, rate=theirs / 60, ending="time")
        return report(options, handled=ours, rate=ours / seconds, ending=ending)

    return run


@pytest.mark.parametrize(("ours", "is_met"), [(29_999, False), (30_000, True)])
def test_ten_times_the_messages_of_polling_are_asked_for(ours: int, is_met: bool) -> None:
    assert judged(simulation.against_polling, boxed(ours, 3_000))[TO_POLLING] is is_met


@pytest.mark.parametrize(("seconds", "is_met"), [(33.0, False), (30.0, True)])
def test_who_handled_all_is_judged_by_the_rate(seconds: float, is_met: bool) -> None:
    runs = boxed(50_000, 10_000, ending="complete", seconds=seconds)
    assert judged(simulation.against_polling, runs)[TO_POLLING] is is_met


def test_engines_run_on_the_same_load_in_the_same_box() -> None:
    simulated = Simulated(boxed(30_000, 3_000))
    list(simulation.against_polling(simulated))  # type: ignore[arg-type]
    assert {options.engine for options in simulated.asked} == {"spanmq", "polling", "polling-indexed"}
    assert len({replace(options, engine="spanmq") for options in simulated.asked}) == 1
    [load] = {replace(options, engine="spanmq") for options in simulated.asked}
    assert (load.types, load.keys, load.workers, load.fill_db, load.duration) == (3, 1_000, 12, 50_000, 60.0)


@pytest.mark.parametrize(("share", "is_met"), [(0.899, False), (0.9, True), (None, False)])
def test_share_of_the_ideal_is_asked_for(share: float | None, is_met: bool) -> None:
    assert judged(simulation.of_the_ideal, lambda options: report(options, ideal_share=share)) == {
        IDEAL: is_met
    }


@pytest.mark.parametrize(
    ("start", "asked", "is_met"),
    [(0.02, 1.0, (True, True)), (0.0201, 1.0, (False, True)), (0.02, 1.01, (True, False))],
)
def test_idle_workers_are_quick_and_quiet(start: float, asked: float, is_met: tuple[bool, bool]) -> None:
    latency = Latency(p50=0.001, p90=0.002, p99=start, max=start)
    verdicts = judged(
        simulation.idle_workers,
        lambda options: report(options, send_to_start=latency, idle_polls_per_second=asked),
    )
    assert (verdicts["idle worker starts"], verdicts["idle worker asks"]) == is_met


@pytest.mark.parametrize(("slowest", "is_met"), [(949.0, False), (950.0, True)])
def test_workers_beyond_the_need_may_cost_nothing(slowest: float, is_met: bool) -> None:
    verdicts = judged(
        simulation.more_workers,
        lambda options: report(options, rate=slowest if options.workers == 24 else 1_000.0),
    )
    assert verdicts == {"more workers": is_met}


@pytest.mark.parametrize("case", simulation.CASES)
def test_no_case_is_met_where_the_audit_objects(case: str) -> None:
    latency = Latency(p50=0.001, p90=0.001, p99=0.001, max=0.001)

    def run(options: Options) -> Report:
        good = report(options, handled=50_000, rate=1e6, ideal_share=1.0, send_to_start=latency)
        if options.is_polling:
            return replace(good, handled=1, rate=1.0)
        broken = tuple(replace(check, ids=("1",)) for check in good.checks[:1])
        return replace(good, checks=broken)

    assert False in judged(simulation.CASES[case], run).values()
