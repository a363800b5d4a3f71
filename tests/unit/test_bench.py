"""What the benchmark prints into the documentation: rates, ratios, verdicts, and no secret."""

import json
import math
from collections.abc import Mapping

import pytest
from bench import bodies, report, results
from bench.__main__ import main, printed_command
from bench.cases import experiments, soak_experiments
from bench.comparisons import COMPARISONS
from bench.contestants import CALLS, NATIVE, UPSTREAM
from bench.environment import Environment
from bench.load import GeneratorError, parse
from bench.plan import FULL, QUICK
from bench.results import LATENCY, RATE, Measurement, summarize
from bench.targets import TARGETS, Measure, Target, Verdict

OUTPUT = """\
pgbench (18.4)
transaction type: script.sql
scaling factor: 1
query mode: prepared
number of clients: 2
number of threads: 2
duration: 3 s
number of transactions actually processed: 1111
number of failed transactions: 0 (0.000%)
latency average = 5.406 ms
initial connection time = 2.109 ms
tps = 369.934790 (without initial connection time)
"""
PROGRESS = """\
progress: 10.0 s, 405.0 tps, lat 4.908 ms stddev 6.849, 0 failed
progress: 20.0 s, 371.9 tps, lat 5.383 ms stddev 7.116, 0 failed
"""
AROUND = Environment(
    started_at="2026-01-01T00:00:00+00:00",
    processor="a processor",
    processors=2,
    memory_gigabytes=8,
    system="Linux",
    load_average_before=0.1,
    commit_ms=0.2,
    versions={"PostgreSQL": "18.4"},
    settings={"fsync": "on"},
)


def measured(
    case: str, contestant: str, *values: float, unit: str = RATE, details: Mapping[str, float] | None = None
) -> list[Measurement]:
    return [
        Measurement(case, contestant, number, value, unit, details or {})
        for number, value in enumerate(values, start=1)
    ]


def test_report_of_pgbench_is_read() -> None:
    load = parse(OUTPUT, PROGRESS)
    assert (load.transactions, load.failed, load.latency_ms) == (1111, 0, 5.406)
    assert load.windows == (405.0, 371.9)
    assert load.seconds == pytest.approx(3.0, abs=0.01)
    with pytest.raises(GeneratorError, match="not a report of pgbench"):
        parse("pgbench: error: connection failed")


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
    assert {target.case for target in cycles} <= quick


def test_report_has_a_row_for_each_contestant_and_every_target() -> None:
    windows = {results.LAST_TO_FIRST: 0.99, results.FIRST_WINDOW: 80_000}
    summaries = summarize(
        measured("snapshot/held", UPSTREAM, 2_600, details=windows)
        + measured("snapshot/held", NATIVE, 81_400, details=windows)
        + measured("held-back/free", NATIVE, 100)
        + measured("held-back/rate", NATIVE, 60)
    )
    text = report.text(AROUND, FULL, summaries)
    assert all(each in text for each in ("81,400 messages/s", "31.31 x", "MISSED", "1 below their floor."))
    measurements = measured("c", NATIVE, 100)
    document = json.loads(report.as_json(AROUND, FULL, measurements, summarize(measurements)))
    assert document["summaries"][0]["ratio"] is None


def test_bodies_are_json_of_the_size_that_they_claim() -> None:
    texts = list(bodies.generate(50))
    assert {len(text.encode()) for text in texts} == {bodies.BODY_BYTES}
    assert len({json.loads(text)["order_id"] for text in texts}) == 50


def test_printed_command_names_no_machine() -> None:
    given = ["--quick", "--dsn", "postgresql://user:secret@host/db", "--json=file", "--only", "a b"]
    assert printed_command(given) == "python -m bench --quick --only 'a b'"


def test_pattern_without_a_case_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nonsense"]) == 2
    assert "no case matches nonsense" in capsys.readouterr().out
