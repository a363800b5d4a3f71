"""The bench of workers runs, and counts right."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.workers import latency
from bench.workers.__main__ import report
from bench.workers.targets import PGMQ, Run, verdicts

from spanmq import Client


@pytest.mark.parametrize("name", ["spanmq", "spanmq-threads"])
def test_contestant_handles_all_and_tells_the_time(empty_database: str, name: str) -> None:
    command = [sys.executable, "-m", "bench.workers.contestant", name, empty_database, "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, cost = map(float, done.stdout.split())
    assert 0 < seconds < 60
    assert cost > 0
    with Client(empty_database) as client:
        assert client.metrics("bench").length == 0


def test_latencies_are_of_each_send(database: str) -> None:
    with Client(database) as client:
        client.create_queue("latency")
    for times in latency.all_ms(database, 4):
        assert len(times) == 4
        assert min(times) > 0


def run(spanmq: float, latency_ms: float) -> Run:
    rates = {"spanmq": [spanmq] * 3, PGMQ: [20_000.0], "procrastinate": [100.0], "pgqueuer": [2_000.0]}
    return Run(rates, [1.0] * 10, [2.0] * 10, [latency_ms] * 10)


def test_targets_are_judged() -> None:
    assert [(reached, verdict) for _, reached, verdict in verdicts(run(8_000.0, 3.0))] == [
        (80.0, "met"),
        (4.0, "met"),
        (0.4, "met"),
        (3.0, "met"),
        (3.0, "met"),
    ]
    assert [verdict for _, _, verdict in verdicts(run(5_999.0, 21.0))] == [
        "met",
        "MISSED",
        "MISSED",
        "MISSED",
        "MISSED",
    ]


def test_report_shows_targets_and_counts_those_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(run(8_000.0, 25.0), {"spanmq": [0.1]}) == 2
    printed = capsys.readouterr().out
    assert "| a row on disk, NOTIFY, an empty query | 2.00 | 2.00 |" in printed
    assert "| rate, to PGQueuer's | 4.00 | at least 3 | met |" in printed
    assert "| latency, p99, ms | 25.00 | at most 20 | MISSED |" in printed
