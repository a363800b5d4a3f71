"""The benchmark's own logic: reading pgbench, medians, ratios, verdicts, reports."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping

import pytest
from bench import bodies, report, results, scripts
from bench.__main__ import _command, main
from bench.cases import experiments, soak_experiments
from bench.comparisons import COMPARISONS, compare
from bench.contestants import CALLS, CONTESTANTS, NATIVE, UPSTREAM
from bench.environment import Environment
from bench.load import GeneratorError, parse
from bench.plan import FULL, QUICK, selects, soaking
from bench.results import LATENCY, RATE, Measurement, summarize
from bench.targets import TARGETS, Measure, Target, Verdict, targets_of
from tests.patience import WAIT_SECONDS

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
HELD = "snapshot/held"
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


def test_report_of_an_older_pgbench_is_read() -> None:
    without_failures = "".join(line for line in OUTPUT.splitlines(keepends=True) if "failed" not in line)
    assert parse(without_failures).failed == 0


def test_other_output_is_refused() -> None:
    with pytest.raises(GeneratorError, match="not a report of pgbench"):
        parse("pgbench: error: connection failed")


def test_ratio_is_that_of_medians() -> None:
    upstream, calls = summarize(measured("c", UPSTREAM, 90, 100, 500) + measured("c", CALLS, 300, 10, 250))
    assert (upstream.value, upstream.ratio) == (100, 1)
    assert (calls.value, calls.lowest, calls.highest, calls.ratio) == (250, 10, 300, 2.5)


def test_shorter_latency_is_better() -> None:
    _, calls = summarize(measured("c", UPSTREAM, 80, unit=LATENCY) + measured("c", CALLS, 0.4, unit=LATENCY))
    assert calls.ratio == pytest.approx(200)


def test_without_upstream_there_is_no_ratio() -> None:
    (summary,) = summarize(measured("c", NATIVE, 100))
    assert math.isnan(summary.ratio)
    assert math.isnan(summary.wal_ratio)


def test_wal_is_compared_with_upstream() -> None:
    upstream = measured("c", UPSTREAM, 1, details={results.WAL_BYTES: 1200})
    native = measured("c", NATIVE, 1, 1, details={results.WAL_BYTES: 480})
    assert summarize(upstream + native)[1].wal_ratio == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("reached", "verdict"),
    [(8.0, Verdict.AIM), (5.0, Verdict.FLOOR), (1.0, Verdict.BELOW), (math.nan, Verdict.UNKNOWN)],
)
def test_verdict_on_a_ratio(reached: float, verdict: Verdict) -> None:
    assert Target("c", NATIVE, floor=4, aim=8).verdict(reached) is verdict


@pytest.mark.parametrize(
    ("reached", "verdict"), [(0.3, Verdict.AIM), (0.5, Verdict.FLOOR), (0.7, Verdict.BELOW)]
)
def test_verdict_on_wal_is_the_other_way_round(reached: float, verdict: Verdict) -> None:
    assert Target("c", NATIVE, floor=0.6, aim=0.4, measure=Measure.WAL).verdict(reached) is verdict


def test_each_target_has_its_case() -> None:
    cases = {case for each in (*experiments(FULL), *soak_experiments(FULL)) for case in each.cases}
    assert {target.case for target in TARGETS} <= cases


def test_each_comparison_has_its_cases() -> None:
    cases = {case for each in experiments(FULL) for case in each.cases}
    assert {case for each in COMPARISONS for case in (each.case, each.beside)} <= cases


def test_limit_may_take_a_tenth_of_the_rate_and_a_nack_three_times_an_ack() -> None:
    def found(limited: float, nack: float) -> list[bool]:
        rates = measured("held-back/free", NATIVE, 100) + measured("held-back/rate", NATIVE, limited)
        times = measured("delivery/ack/batch-1", NATIVE, 1, unit=LATENCY)
        times += measured("delivery/nack/batch-1", NATIVE, nack, unit=LATENCY)
        return [each.is_met for each in compare(summarize(rates + times))]

    assert found(90, 3) == [True, True]
    assert found(89, 3.1) == [False, False]
    assert compare(summarize(measured("held-back/rate", NATIVE, 10))) == []


def test_report_judges_our_cases_beside_each_other() -> None:
    summaries = summarize(measured("held-back/free", NATIVE, 100) + measured("held-back/rate", NATIVE, 60))
    text = report.text(AROUND, FULL, summaries)
    assert "MISSED" in text
    assert "1 targets measured, 1 below their floor." in text


def test_quick_plan_measures_every_cycle_that_has_a_target() -> None:
    cases = {case for each in experiments(QUICK) for case in each.cases}
    wanted = {
        target.case
        for target in TARGETS
        if target.case.startswith("cycle/") and target.measure is Measure.RATIO
    }
    assert wanted <= cases


def test_quick_plan_leaves_out_backlogs_that_take_minutes_to_make() -> None:
    cases = {case for each in experiments(QUICK) for case in each.cases}
    assert [case for case in cases if "singles" in case or "half-settled" in case] == []
    beside = {case for each in COMPARISONS for case in (each.case, each.beside)}
    assert cases & beside == set()


def test_quick_run_does_not_judge_a_snapshot_held_for_seconds() -> None:
    (summary,) = summarize(measured(HELD, NATIVE, 100))
    assert len(targets_of(summary, FULL)) == 2
    assert targets_of(summary, QUICK) == []


def test_soak_is_as_long_as_asked_for() -> None:
    plan = soaking(FULL, 2)
    assert plan.soak_windows * plan.soak_window_seconds == 120


def test_cases_are_selected_by_glob_or_text() -> None:
    assert selects([], "send/batch-1/clients-1")
    assert selects(["send/*"], "send/batch-1/clients-1")
    assert selects(["held", "batch-1/"], "send/batch-1/clients-1")
    assert not selects(["cycle/*"], "send/batch-1/clients-1")


def test_bodies_are_json_of_the_size_that_they_claim() -> None:
    texts = list(bodies.generate(50))
    assert {len(text.encode()) for text in texts} == {bodies.BODY_BYTES}
    assert len({json.loads(text)["order_id"] for text in texts}) == 50
    assert texts == list(bodies.generate(50))


def test_array_literal_quotes() -> None:
    assert bodies.array_literal(['{"a": "\\n"}', "b"]) == r'{"{\"a\": \"\\n\"}","b"}'


@pytest.mark.parametrize("contestant", CONTESTANTS, ids=lambda contestant: contestant.name)
def test_scripts_close_what_they_open(contestant: object) -> None:
    (player,) = (each for each in CONTESTANTS if each is contestant)
    for batch in (1, 100):
        script = scripts.cycle(player, batch)
        assert script.count("\\if ") == script.count("\\endif")


def test_report_has_a_row_for_each_contestant_and_every_target() -> None:
    windows = {results.LAST_TO_FIRST: 0.99, results.FIRST_WINDOW: 80_000}
    summaries = summarize(
        measured(HELD, UPSTREAM, 2_600, details=windows)
        + measured(HELD, NATIVE, 81_400, details=windows)
        + measured(
            "metrics/singles",
            CALLS,
            0.5,
            unit=LATENCY,
            details={results.FIRST_CALL_MS: 1, results.SLOWEST_MS: 2},
        )
    )
    text = report.text(AROUND, FULL, summaries)
    assert "81,400 messages/s" in text
    assert "31.31 x" in text
    assert "2 targets measured, 0 below their floor." in text
    assert report.markdown(AROUND, FULL, summaries, "make bench").count("| native calls |") == 3


def test_json_holds_no_number_that_json_lacks() -> None:
    measurements = measured("c", NATIVE, 100)
    document = json.loads(report.as_json(AROUND, FULL, measurements, summarize(measurements)))
    assert document["summaries"][0]["ratio"] is None
    assert document["measurements"][0]["value"] == 100


def test_printed_command_names_no_machine() -> None:
    given = ["--quick", "--dsn", "postgresql://user:secret@host/db", "--json=file", "--only", "a b"]
    assert _command(given) == "python -m bench --quick --only 'a b'"


def test_pattern_without_a_case_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nonsense"]) == 2
    assert "no case matches nonsense" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rounds", "0"], "'0' is no number from 1 on"),
        (["--seconds", "-1"], "'-1' is no number from 1 on"),
        (["--soak", "nan"], "'nan' are no minutes"),
        (["--contestants", ""], "of upstream,calls,native"),
        (["--json", "/nowhere/results.json"], "/nowhere/results.json can't be written"),
        (["--dsn", "host=/nowhere"], "no connection to the server of --dsn"),
    ],
)
def test_what_can_not_be_measured_is_refused_at_once(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_reader_who_goes_away_ends_it_in_silence() -> None:
    command = [sys.executable, "-m", "bench", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(WAIT_SECONDS)) == (b"", 1)
