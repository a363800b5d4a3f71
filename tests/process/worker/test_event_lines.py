"""`spanmq worker --json` whose events nobody reads, or nobody can read any more: it goes on."""

import json
import signal
from pathlib import Path
from typing import IO

import pytest
from tests.cli.program import Program, wait_until
from tests.patience import WAIT_SECONDS
from tests.process.worker.test_command import worker

from spanmq import Client
from spanmq.cli.log_lines import LINES_MAX


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.py").write_text("def ship(message): pass\n")
    return tmp_path


def read_at_last(process: Program[bytes], stream: IO[bytes], dropped: str, client: Client) -> list[str]:
    """Read what has waited, all that was not dropped, and end the worker; return the lines.

    Until it has said how many lines it dropped it runs: one that ends does not wait for a reader that comes late.
    """
    lines = [stream.readline() for _ in range(LINES_MAX)]
    # There is room again, and something to say.
    client.send("orders", "one more")
    while dropped not in lines[-1].decode():
        lines.append(stream.readline())
        assert lines[-1], "it has ended"
    process.send_signal(signal.SIGTERM)
    lines += stream.readlines()
    assert process.wait(WAIT_SECONDS) == 0
    return [line.decode().rstrip("\n") for line in lines]


def test_worker_goes_on_though_nobody_reads_its_events(client: Client, database: str, folder: Path) -> None:
    # Two events each: more than a pipe and the worker itself hold together.
    sent = client.send_batch("orders", range(LINES_MAX))
    with worker(folder, database, "jobs:ship", "-q", "orders", "--json") as process:
        wait_until(lambda: not client.queues.metrics("orders").length, process)
        lines = read_at_last(process, process.stdout, '"events_dropped"', client)
        assert "events_dropped" in process.stderr.read().decode()
    events = [json.loads(line) for line in lines]
    dropped = sum(event["count"] for event in events if event["event"] == "events_dropped")
    assert dropped > 0
    about_messages = [event for event in events if event["event"] in ("message_handled", "message_settled")]
    assert len(about_messages) + dropped >= 2 * len(sent)
    assert events[-1]["event"] == "worker_stopped"


def test_worker_goes_on_though_the_reader_of_its_events_is_gone(
    client: Client, database: str, folder: Path
) -> None:
    with worker(folder, database, "jobs:ship", "-q", "orders", "--json") as process:
        assert json.loads(process.stdout.readline())["event"] == "worker_started"
        process.stdout.close()
        for number in range(3):
            client.send("orders", number)
            wait_until(lambda: not client.queues.metrics("orders").length, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
        said = process.stderr.read().decode()
        # For `communicate`, which would look at it again.
        process.stdout = None  # type: ignore[assignment]
    assert said.count("events_unread") == 1
    assert "Traceback" not in said


def test_worker_goes_on_though_nobody_reads_its_log(client: Client, database: str, folder: Path) -> None:
    # Three lines and more for each lot: a pipe holds 64 kB.
    client.send_batch("orders", range(LINES_MAX))
    with worker(folder, database, "jobs:ship", "-q", "orders", "--log-level", "debug") as process:
        wait_until(lambda: not client.queues.metrics("orders").length, process)
        lines = read_at_last(process, process.stderr, " log_dropped ", client)
    assert sum(int(line.rpartition("=")[2]) for line in lines if " log_dropped " in line) > 0
    assert "worker_stopped" in lines[-1]
