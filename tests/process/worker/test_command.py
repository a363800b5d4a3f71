"""`spanmq worker` as a user runs it: what it prints, and how it ends."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import Program, end, finish, started, wait_until
from tests.patience import WAIT_SECONDS

from spanmq import Client

JOBS = """
import asyncio
import os
import signal
import time
from pathlib import Path

def ship(message):
    if message.body == "bad":
        raise ValueError("no such order")

def slow(message):
    Path("begun").touch()
    while not Path("end").exists():
        time.sleep(0.01)

async def block(message):
    slow(message)

async def end(message):
    Path("more" if Path("begun").exists() else "begun").touch()
    if not Path("more").exists():
        os.kill(os.getpid(), signal.SIGTERM)

async def ignore(message):
    while True:
        Path("begun").touch()
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    return tmp_path


@contextmanager
def worker(folder: Path, dsn: str, *arguments: object) -> Iterator[Program[bytes]]:
    with started("worker", *map(str, arguments), dsn=dsn, cwd=folder, stdin=subprocess.DEVNULL) as process:
        yield process


def events(process: Program[bytes], wanted: str, count: int = 1) -> list[dict[str, Any]]:
    """Read events until so many of a name have come; give these."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = process.stdout.readline()
        assert line, finish(process)
        event = json.loads(line)
        found += [event] if event["event"] == wanted else []
    return found


def test_worker_handles_messages_until_it_is_terminated(client: Client, database: str, folder: Path) -> None:
    client.send_batch("orders", ["good", "bad"])
    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    with worker(folder, database, "jobs:ship", "-q", "orders", "--json", "--name", "w1") as process:
        settled = events(process, "message_settled", 2)
        done = end(process)
    assert {event["outcome"] for event in settled} == {"acked", "retrying"}
    assert done.code == 0
    assert "worker_started worker=w1 queues=orders" in done.err
    assert "outcome=retrying attempt=1" in done.err
    assert 'error="no such order"' in done.err
    assert "worker_stopping worker=w1 reason=SIGTERM" in done.err


def test_tasks_are_received_from_the_database_that_they_are_sent_to(
    client: Client, database: str, empty_database: str, folder: Path
) -> None:
    lines = ["from spanmq.tasks import Tasks", f"tasks = Tasks('orders', dsn={database!r})"]
    lines += ["@tasks.task", "def ship(number: int) -> None: ..."]
    (folder / "shop.py").write_text("\n".join(lines))
    client.send("orders", {"task": "ship", "args": {"number": 1}})
    with worker(folder, empty_database, "shop:tasks", "--json") as process:
        assert [event["outcome"] for event in events(process, "message_settled")] == ["acked"]
        assert end(process).code == 0
    # An address on the command line is meant for this worker.
    with worker(folder, database, "shop:tasks", "--dsn", empty_database) as process:
        done = finish(process)
    assert (done.code, "schema missing" in done.err) == (1, True), done.err


def test_ctrl_c_waits_for_the_handler_that_runs(client: Client, database: str, folder: Path) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:slow", "-q", "orders", "--json") as process:
        wait_until((folder / "begun").exists, process)
        process.send_signal(signal.SIGINT)
        events(process, "worker_stopping")
        (folder / "end").touch()
        assert [event["outcome"] for event in events(process, "message_settled")] == ["acked"]
        done = finish(process)
    assert (done.code, done.err.splitlines()[-1]) == (130, "spanmq: interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_second_signal_ends_it_at_once(
    client: Client, database: str, folder: Path, number: signal.Signals
) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:slow", "-q", "orders", "--json") as process:
        wait_until((folder / "begun").exists, process)
        process.send_signal(signal.SIGTERM)
        events(process, "worker_stopping")
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == -number
    assert client.queues.metrics("orders").visible_length == 0  # its lease runs out by itself


def test_second_signal_ends_it_though_a_handler_blocks_the_event_loop(
    client: Client, database: str, folder: Path
) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:block", "-q", "orders") as process:
        wait_until((folder / "begun").exists, process)

        def has_ended() -> bool:
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        # Two that come together may be one.
        wait_until(has_ended)
        assert process.returncode == -signal.SIGTERM


def test_signal_that_comes_while_a_handler_blocks_the_event_loop_begins_no_other(
    client: Client, database: str, folder: Path
) -> None:
    client.send_batch("orders", range(20))
    with worker(folder, database, "jobs:end", "-q", "orders") as process:
        assert process.wait(WAIT_SECONDS) == 0
    assert not (folder / "more").exists()
    assert [message.attempt for message in client.receive("orders", 20)] == [1] * 19


def test_handler_that_ignores_its_cancellation_does_not_keep_the_worker(
    client: Client, database: str, folder: Path
) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:ignore", "-q", "orders", "--grace", "0.1") as process:
        wait_until((folder / "begun").exists, process)
        assert end(process).code == 0
    assert [message.attempt for message in client.receive("orders")] == [1]


def test_command_serves_metrics_on_this_machine(client: Client, database: str, folder: Path) -> None:
    with worker(folder, database, "jobs:ship", "-q", "orders", "--metrics-port", "0", "--json") as process:
        # Before that nobody listens to signals.
        events(process, "worker_started")
        line = process.stderr.readline().decode()
        found = re.search(r"metrics_served address=(http://127\.0\.0\.1:\d+/metrics)", line)
        assert found is not None, line
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(found[1], timeout=WAIT_SECONDS) as answer:
            assert "spanmq_worker_messages_held" in answer.read().decode()
        assert end(process).code == 0
