"""Workers of Celery, in processes of their own, that are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kombu
import pytest
from tests.cli.program import environment
from tests.patience import WAIT_SECONDS, wait_until

import spanmq.celery  # noqa: F401, kombu knows the transport by it
from spanmq import Client

TASKS = """
import os
import time
import spanmq.celery
from celery import Celery

app = Celery("orders", broker="spanmq://", backend="spanmq://")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_transport_options={"visibility_timeout": 2.0},
    broker_connection_retry_on_startup=True,
)

@app.task(name="handle")
def handle(number):
    with open("begun.txt", "a") as file:
        file.write(f"{number}\\n")
    while not os.path.exists("go"):
        time.sleep(0.02)
    with open("done.txt", "a") as file:
        file.write(f"{number}\\n")
    return number
"""


@contextmanager
def worker(folder: Path, dsn: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "orders", "worker", "-c", "2", "-l", "WARNING"]
    with (folder / "celery.log").open("ab") as log:
        more = {"PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(
            command, cwd=folder, env=environment(dsn, more), stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        # Its children too.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def lines(path: Path) -> list[str]:
    return sorted(path.read_text().split()) if path.exists() else []


def test_tasks_of_a_killed_worker_run_in_the_next_one(
    database: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_DSN", database)
    (tmp_path / "orders.py").write_text(TASKS)
    client.queues.create("celery")
    with kombu.Connection("spanmq://") as connection:
        for number in range(4):
            headers = {"id": f"task{number}", "task": "handle", "lang": "py"}
            kombu.Producer(connection).publish(
                [[number], {}, {}], routing_key="celery", headers=headers, correlation_id=f"task{number}"
            )
    with worker(tmp_path, database) as first:
        wait_until(lambda: lines(tmp_path / "begun.txt") == ["0", "1"], first)
        # Heartbeats hold them for longer than a lease.
        begun = [message.leased_until for message in client.peek("celery", 2)]
        wait_until(
            lambda: all(m.leased_until > b for m, b in zip(client.peek("celery", 2), begun, strict=True)),
            first,
        )
    assert client.queues.metrics("celery").length == 4
    (tmp_path / "go").touch()
    with worker(tmp_path, database) as second:
        wait_until(lambda: client.queues.metrics("celery").length == 0, second, seconds=WAIT_SECONDS)
    assert lines(tmp_path / "done.txt") == ["0", "1", "2", "3"]
    # Of the killed worker nothing is left but logs that all workers share.
    names = {queue.name for queue in client.queues.list()} - {"celery", "celery.results", "orders"}
    assert {name for name in names if not name.endswith(".broadcast")} == set()
