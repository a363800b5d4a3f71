"""Celery through kombu's SQS transport: a program that knows nothing of us, in processes of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from service.tests.running import Running
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

TASKS = """
import os
import time
from celery import Celery

app = Celery("orders", broker=os.environ["BROKER"])
app.conf.update(
    broker_transport_options={
        "region": "eu-central-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.1,
        "visibility_timeout": 600,
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


HANGING = "import orders_tasks; orders_tasks.hang.delay(1)"


class Celery:
    """The tasks in a folder, and programs that run there."""

    def __init__(self, folder: Path, address: str, key: dict[str, str], tasks: str) -> None:
        self.folder = folder
        (folder / "orders_tasks.py").write_text(tasks)
        host = address.removeprefix("http://")
        broker = f"sqs://{key['access_key_id']}:{key['secret_access_key']}@{host}"
        self._environment = {**os.environ, "BROKER": broker, "PYTHONWARNINGS": "ignore", "NO_PROXY": "*"}

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "celery.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *arguments], cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )

    def work_until(self, condition: Callable[[], bool]) -> None:
        """Have a worker work, and kill it."""
        worker = self.run("-m", "celery", "-A", "orders_tasks", "worker", "--pool", "solo", "-l", "WARNING")
        try:
            wait_until(condition)
        finally:
            worker.kill()
            worker.wait()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []

    @property
    def log(self) -> str:
        return (self.folder / "celery.log").read_text()


def test_tasks_of_celery_are_done_and_gone(
    keyed: Running, key: dict[str, str], service_database: str, tmp_path: Path
) -> None:
    celery = Celery(tmp_path, keyed.address, key, TASKS)
    length = "select queue_length from pgmq.metrics('celery-orders')"
    assert celery.run("orders_tasks.py").wait(WAIT_SECONDS) == 0, celery.log
    assert ask(service_database, length) == 20
    celery.work_until(lambda: ask(service_database, length) == 0)
    # Each once, and the one that failed once more.
    assert sorted(map(int, celery.lines("done.txt"))) == sorted([*range(20), 7]), celery.log


def test_task_of_a_worker_that_was_killed_is_done_by_the_next_one(
    keyed: Running, key: dict[str, str], service_database: str, tmp_path: Path
) -> None:
    """With acks_late the message stays in the queue until the task is done; SIGKILL leaves no other trace."""
    celery = Celery(tmp_path, keyed.address, key, TASKS.replace("celery-orders", "celery-killed"))
    length = "select queue_length from pgmq.metrics('celery-killed')"
    assert celery.run("-c", HANGING).wait(WAIT_SECONDS) == 0, celery.log
    celery.work_until(lambda: celery.lines("started.txt") == ["1"])
    assert ask(service_database, length) == 1
    # Its visibility timeout is over.
    do(service_database, """select pgmq.set_vt('celery-killed', msg_id, 0) from pgmq."q_celery-killed" """)
    celery.work_until(lambda: ask(service_database, length) == 0)
    assert (celery.lines("started.txt"), celery.lines("done.txt")) == (["1", "1"], ["1"]), celery.log
