"""The benches that compare workers run, and count right."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.workers.targets import PGMQ, Run, verdicts

from spanmq import Client


@pytest.mark.parametrize("name", ["spanmq", "spanmq-tasks", "spanmq-tasks-threads"])
def test_contestant_handles_all_and_tells_the_time(empty_database: str, name: str) -> None:
    command = [sys.executable, "-m", "bench.workers.contestant", name, empty_database, "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, cost = map(float, done.stdout.split())
    assert min(seconds, cost) > 0
    with Client(empty_database) as client:
        assert client.queues.metrics("bench").length == 0


def test_targets_are_judged() -> None:
    for rate, latency_ms, missed in ((8_000.0, 3.0, 0), (3_999.0, 21.0, 7)):
        others = {PGMQ: [20_000.0], "procrastinate": [100.0], "pgqueuer": [2_000.0]}
        rates = {"spanmq": [rate] * 3, "spanmq-threads": [rate], "spanmq-tasks": [rate * 0.9], **others}
        rates["spanmq-tasks-threads"] = [rate * (0.9 if missed == 0 else 0.7)]
        judged = verdicts(Run(rates, [1.0] * 10, [2.0] * 10, [latency_ms] * 10))
        assert [verdict for _, _, verdict in judged].count("MISSED") == missed
