"""The benches that compare workers run, and count right."""

import subprocess
import sys
from dataclasses import astuple

import pytest
from bench.workers.targets import Run, Times, verdicts

from spanmq import Client


@pytest.mark.parametrize("name", ["spanmq", "spanmq-tasks", "spanmq-tasks-threads"])
def test_contestant_handles_all_and_tells_the_time(empty_database: str, name: str) -> None:
    command = [sys.executable, "-m", "bench.workers.contestant", name, empty_database, "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert min(astuple(Times(*map(float, done.stdout.split())))) > 0
    with Client(empty_database) as client:
        assert client.queues.metrics("bench").length == 0


def times(rate: float) -> list[Times]:
    return [Times(0.02, 0.01, 1000 / rate, 500 / rate)] * 3


def test_targets_are_judged() -> None:
    for rate, latency_ms, share, missed in ((8_000.0, 3.0, 0.9, 0), (3_999.0, 21.0, 0.7, 8)):
        by_name = {name: times(rate) for name in ("spanmq", "spanmq-threads")}
        by_name |= {name: times(rate * share) for name in ("spanmq-tasks", "spanmq-tasks-threads")}
        by_name |= {"procrastinate": times(100), "pgqueuer": times(2_000)}
        judged = verdicts(Run([20_000.0], by_name, [1.0] * 10, [2.0] * 10, [latency_ms] * 10))
        assert [verdict for _, _, verdict in judged].count("MISSED") == missed
