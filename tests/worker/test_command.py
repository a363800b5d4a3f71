"""`spanmq worker` as a user runs it: what it prints, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.cli.forked import Forked
from tests.cli.program import Done, environment, finish
from tests.patience import WAIT_SECONDS

from spanmq import Client

JOBS = """
import time
from pathlib import Path

def ship(message):
    if message.body == "bad":
        raise ValueError("no such order")

def slow(message):
    Path("begun").touch()
    while not Path("end").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text(JOBS)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no configuration')\n")
    return tmp_path


@contextmanager
def worker(folder: Path, dsn: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    process = Forked(
        ["worker", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(dsn),
        cwd=folder,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def refused(folder: Path, dsn: str, *arguments: object) -> Done:
    with worker(folder, dsn, *arguments) as process:
        return finish(process)


def events(process: subprocess.Popen[bytes], wanted: str, count: int = 1) -> list[dict[str, Any]]:
    """Read events until so many of a name have come; give these."""
    found: list[dict[str, Any]] = []
    assert process.stdout is not None
    while len(found) < count:
        line = process.stdout.readline()
        assert line, finish(process)
        event = json.loads(line)
        found += [event] if event["event"] == wanted else []
    return found


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


def test_worker_handles_messages_until_it_is_terminated(client: Client, database: str, folder: Path) -> None:
    client.send_batch("orders", ["good", "bad"])
    client.set_policy("orders", {"backoff_base": 600, "jitter": False})
    with worker(folder, database, "jobs:ship", "-q", "orders", "--json", "--name", "w1") as process:
        settled = events(process, "message_settled", 2)
        process.send_signal(signal.SIGTERM)
        done = finish(process)
    assert {event["outcome"] for event in settled} == {"acked", "retrying"}
    assert done.code == 0
    assert "worker_started worker=w1 queues=orders" in done.err
    assert "outcome=retrying attempt=1" in done.err
    assert 'error="no such order"' in done.err
    assert "worker_stopping worker=w1 reason=SIGTERM" in done.err


def test_ctrl_c_waits_for_the_handler_that_runs(client: Client, database: str, folder: Path) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:slow", "-q", "orders", "--json") as process:
        wait_for(folder / "begun")
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
        wait_for(folder / "begun")
        process.send_signal(signal.SIGTERM)
        events(process, "worker_stopping")
        process.send_signal(number)
        assert process.wait(WAIT_SECONDS) == -number
    assert client.metrics("orders").visible_length == 0  # its lease runs out by itself


def test_worker_gives_back_after_the_grace(client: Client, database: str, folder: Path) -> None:
    client.send("orders", 1)
    with worker(folder, database, "jobs:slow", "-q", "orders", "--grace", "0.1") as process:
        wait_for(folder / "begun")
        process.send_signal(signal.SIGTERM)
        assert finish(process).code == 0
    assert [message.attempt for message in client.receive("orders")] == [1]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("no_such:ship", "-q", "orders"), "bad handler: there is no module 'no_such'"),
        (("broken:ship", "-q", "orders"), "bad handler: the module 'broken' raised RuntimeError"),
        (("jobs:ship", "-q", "no_such_queue"), "no such queue"),
        (("jobs:ship", "-q", "orders", "--shards", "all"), "no such queue: there are no shards of orders"),
        (("jobs:ship", "-q", "a", "-q", "b", "--shards", "all"), "bad argument: --shards is for one --queue"),
        (("jobs:ship", "-q", "a", "--server", "e=x"), "bad argument: --server is for a sharded queue"),
        (("jobs:ship", "-q", "a", "--shards", "all", "--server", "e"), "bad argument: --server is NAME=DSN"),
        (("jobs:ship", "-q", "orders", "--lease", "0"), "bad argument: lease must be at least 0.1 s"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_with_a_line(
    client: Client, database: str, folder: Path, arguments: tuple[str, ...], text: str
) -> None:
    done = refused(folder, database, *arguments)
    assert done.code == 1
    assert f"spanmq: {text}" in done.err
    assert "Traceback" not in done.err
