"""`spanmq worker --reload` runs what a file says now."""

import signal
from pathlib import Path

import pytest
from tests.cli.program import started
from tests.patience import WAIT_SECONDS

from spanmq import Client

MODULE = """
from spanmq.tasks import Tasks
tasks = Tasks("orders")
@tasks.task
def greet(name: str) -> None:
    print("{greeting}", name, flush=True)
"""


def test_worker_runs_the_file_as_it_is_now(client: Client, database: str, tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    module = tmp_path / "greetings.py"
    module.write_text(MODULE.format(greeting="hello"))
    command = ("worker", "greetings:tasks", "--reload", "--log-level", "error")
    with started(*command, dsn=database, cwd=tmp_path, stdin=None, stderr=None) as process:
        for greeting in ("hello", "good morning"):
            module.write_text(MODULE.format(greeting=greeting))
            line = ""
            # The worker of the file before may still take one.
            while not line.startswith(greeting):
                client.send("orders", {"task": "greet", "args": {"name": "ada"}})
                line = process.stdout.readline().decode()
                assert line, process.wait(WAIT_SECONDS)
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0
