"""What the benchmark prints into the documentation: rates, ratios, verdicts, and no secret."""

import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from lab.bench import processor
from lab.bench.__main__ import printed_command
from lab.bench.cases import experiments, soak_experiments
from lab.bench.comparisons import COMPARISONS
from lab.bench.contestants import CALLS, NATIVE, UPSTREAM
from lab.bench.plan import FULL, QUICK
from lab.bench.results import LATENCY, RATE, Measurement, summarize
from lab.bench.targets import TARGETS, Measure, Target, Verdict
from lab.bench.workers import packages
from lab.bench.workers.targets import Run, Times, verdicts


def measured(
    case: str, contestant: str, *values: float, unit: str = RATE, details: Mapping[str, float] | None = None
) -> list[Measurement]:
    return [
        Measurement(case, contestant, number, value, unit, details or {})
        for number, value in enumerate(values, start=1)
    ]


def test_ratio_is_that_of_medians_and_shorter_latency_is_better() -> None:
    upstream, calls = summarize(measured("c", UPSTREAM, 90, 100, 500) + measured("c", CALLS, 300, 10, 250))
    assert (upstream.value, upstream.ratio) == (100, 1)
    assert (calls.value, calls.lowest, calls.highest, calls.ratio) == (250, 10, 300, 2.5)
    _, calls = summarize(measured("c", UPSTREAM, 80, unit=LATENCY) + measured("c", CALLS, 0.4, unit=LATENCY))
    assert calls.ratio == pytest.approx(200)
    (alone,) = summarize(measured("c", NATIVE, 100))
    assert math.isnan(alone.ratio)


@pytest.mark.parametrize(
    ("target", "reached", "verdict"),
    [
        (Target("c", NATIVE, floor=4, aim=8), 8.0, Verdict.AIM),
        (Target("c", NATIVE, floor=4, aim=8), 5.0, Verdict.FLOOR),
        (Target("c", NATIVE, floor=4, aim=8), 1.0, Verdict.BELOW),
        (Target("c", NATIVE, floor=4, aim=8), math.nan, Verdict.UNKNOWN),
        (Target("c", NATIVE, floor=0.6, aim=0.4, measure=Measure.WAL), 0.3, Verdict.AIM),
        (Target("c", NATIVE, floor=0.6, aim=0.4, measure=Measure.WAL), 0.7, Verdict.BELOW),
    ],
)
def test_verdict(target: Target, reached: float, verdict: Verdict) -> None:
    assert target.verdict(reached) is verdict


def test_each_target_and_each_comparison_has_its_case() -> None:
    full = {case for each in experiments(FULL) for case in each.cases}
    soak = {case for each in soak_experiments(FULL) for case in each.cases}
    assert {target.case for target in TARGETS} <= full | soak
    assert {case for each in COMPARISONS for case in (each.case, each.beside)} <= full | soak
    quick = {case for each in experiments(QUICK) for case in each.cases}
    cycles = (each for each in TARGETS if each.case.startswith("cycle/") and each.measure is Measure.RATIO)
    # All but those of many clients.
    assert {target.case for target in cycles} <= quick | {
        "cycle/batch-1/clients-64",
        "cycle/batch-1/clients-200",
    }


def test_printed_command_names_no_machine() -> None:
    given = ["--quick", "--dsn", "postgresql://user:secret@host/db", "--json=file", "--only", "a b"]
    assert printed_command(given) == "python -m lab.bench --quick --only 'a b'"


def test_processor_time_of_children_that_end_is_counted_once() -> None:
    program = (
        "import subprocess, sys\n"
        "burn = 'import time\\nwhile time.process_time() < 0.05: pass'\n"
        "for _ in range(20): subprocess.run([sys.executable, '-S', '-c', burn], check=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as parent:
        seen = [processor.seconds_of(parent.pid)]
        while seen[-1] < 1:
            seen.append(processor.seconds_of(parent.pid))
            # Ticks of 10 ms, rounded for each child.
            assert seen[-1] >= max(seen) - 0.03
        parent.communicate()
    assert seen[-1] < 2.5


def test_worker_target_without_a_peer_is_not_missed() -> None:
    ours = Times(0.01, 0.01, 0.005, 0.02, 0.015, 0.010, [1.0])
    theirs = replace(ours, work_server_ms=0.060)

    def judged(times: Mapping[str, list[Times]]) -> dict[str, str]:
        run = Run([], times, [], [], [])
        return {target.what: verdict for target, _, verdict in verdicts(run)}

    alone = judged({"spanmq-tasks": [ours]})
    beside = judged({"spanmq-tasks": [ours], "graphile-worker": [theirs]})
    ratio = "processor time of a task, sending included, to graphile-worker's"
    assert (alone[ratio], beside[ratio]) == ("not measured", "met")
    assert alone["tasks a second"] == "met"
    assert alone["processor time to handle a task, the server's, µs"] == "MISSED"


def test_package_for_a_python_that_is_not_here_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packages, "CACHE", tmp_path)
    monkeypatch.setitem(packages.PACKAGES, "oban", packages.Package("oban", "1", python=(9, 9)))
    with pytest.raises(packages.UnavailableError, match=r"needs Python 9\.9"):
        packages.interpreter_for("oban")
