"""Celery through kombu's SQS transport: a program that knows nothing of us, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.program import ask, wait_until
from tests.patience import WAIT_SECONDS
from tests.service.running import Running

TASKS = """
import os
import time
from celery import Celery

app = Celery("orders", broker=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={
        "region": "eu-central-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.1,
        "visibility_timeout": 60,
    },
    task_default_queue="celery-orders",
    broker_connection_retry_on_startup=True,
    worker_enable_remote_control=False,
    task_acks_late=True,
)

@app.task(name="orders.handle", autoretry_for=(KeyError,), default_retry_delay=0, retry_backoff=False)
def handle(number):
    with open("done.txt", "a+") as file:
        file.write(f"{number}\\n")
        file.flush()
        file.seek(0)
        if number == 7 and file.read().split().count("7") < 2:
            raise KeyError(number)

@app.task(name="orders.hang")
def hang(number):
    with open("started.txt", "a+") as file:
        file.write(f"{number}\\n")
        file.flush()
        file.seek(0)
        is_first = file.read().split().count(str(number)) == 1
    # The first worker never ends this: it is killed within it.
    while is_first:
        time.sleep(1)
    with open("done.txt", "a") as file:
        file.write(f"{number}\\n")

if __name__ == "__main__":
    for number in range(20):
        handle.delay(number)
"""


def test_tasks_of_celery_are_done_and_gone(
    keyed: Running, key: dict[str, str], service_database: str, tmp_path: Path
) -> None:
    (tmp_path / "orders_tasks.py").write_text(TASKS)
    host = keyed.address.removeprefix("http://")
    broker = f"sqs://{key['access_key_id']}:{key['secret_access_key']}@{host}"
    environment = {**os.environ, "BROKER": broker, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "celery.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=tmp_path, env=environment, stdout=log, stderr=log
            )

    assert run("orders_tasks.py").wait(WAIT_SECONDS) == 0, (tmp_path / "celery.log").read_text()
    assert ask(service_database, "select queue_length from pgmq.metrics('celery-orders')") == 20
    worker = run("-m", "celery", "-A", "orders_tasks", "worker", "--pool", "solo", "-l", "WARNING")
    try:
        wait_until(
            lambda: ask(service_database, "select queue_length from pgmq.metrics('celery-orders')") == 0
        )
    finally:
        worker.kill()
        worker.wait()
    done = [int(line) for line in (tmp_path / "done.txt").read_text().split()]
    # Each once, and the one that failed once more.
    assert sorted(done) == sorted([*range(20), 7]), (tmp_path / "celery.log").read_text()


HANGING = "import orders_tasks; orders_tasks.hang.delay(1)"


def test_task_of_a_worker_that_was_killed_is_done_by_the_next_one(
    keyed: Running, key: dict[str, str], service_database: str, tmp_path: Path
) -> None:
    """With acks_late the message stays in the queue until the task is done; SIGKILL leaves no other trace."""
    tasks = TASKS.replace("celery-orders", "celery-killed").replace(
        '"visibility_timeout": 60', '"visibility_timeout": 3'
    )
    (tmp_path / "orders_tasks.py").write_text(tasks)
    host = keyed.address.removeprefix("http://")
    broker = f"sqs://{key['access_key_id']}:{key['secret_access_key']}@{host}"
    environment = {**os.environ, "BROKER": broker, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}
    log = tmp_path / "celery.log"

    def run(*arguments: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=tmp_path, env=environment, stdout=file, stderr=file
            )

    def lines(name: str) -> list[str]:
        path = tmp_path / name
        return path.read_text().split() if path.exists() else []

    assert run("-c", HANGING).wait(WAIT_SECONDS) == 0, log.read_text()
    arguments = ("-m", "celery", "-A", "orders_tasks", "worker", "--pool", "solo", "-l", "WARNING")
    first = run(*arguments)
    try:
        wait_until(lambda: lines("started.txt") == ["1"])
    finally:
        first.kill()
        first.wait()
    length = "select queue_length from pgmq.metrics('celery-killed')"
    assert ask(service_database, length) == 1
    second = run(*arguments)
    try:
        wait_until(lambda: ask(service_database, length) == 0)
    finally:
        second.kill()
        second.wait()
    assert (lines("started.txt"), lines("done.txt")) == (["1", "1"], ["1"]), log.read_text()
