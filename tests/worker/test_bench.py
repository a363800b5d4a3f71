"""The bench of workers runs, and counts right."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.workers import latency

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
    for times in (latency.bare_ms(database, 5), latency.worker_ms(database, 5)):
        assert len(times) == 5
        assert min(times) > 0
