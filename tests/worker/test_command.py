"""`spanmq worker` refuses what makes no sense."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.program import spanmq

from spanmq import Client


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("no_such:ship", "-q", "orders"), "invalid handler: module 'no_such' does not exist"),
        (("broken:ship", "-q", "orders"), "invalid handler: the module 'broken' raised RuntimeError"),
        (("jobs:ship",), "invalid argument: a function needs --queue"),
        (("jobs:task", "-q", "orders"), "invalid handler: <task 'task' of queue 'a'> is not a handler"),
        (("jobs:tasks", "no_such"), "invalid handler: module 'no_such' does not exist"),
        (("jobs:tasks", "jobs:others"), "invalid argument: jobs:others is another object than jobs:tasks"),
        (("jobs:ship", "jobs", "-q", "a"), "invalid argument: further modules and --create-queues are for"),
        (("jobs:ship", "-q", "a", "--create-queues"), "invalid argument: further modules and --create-q"),
        (("jobs.tasks", "--shards", "all"), "invalid argument: --shards and --in-batches are for a function"),
        (("jobs:tasks", "--shards", "all"), "invalid argument: --shards and --in-batches are for a function"),
        (("jobs:ship", "-q", "no_such_queue"), "queue not found"),
        (("jobs:ship", "-q", "orders", "--shards", "all"), "queue not found: orders has no shards"),
        (
            ("jobs:ship", "-q", "a", "-q", "b", "--shards", "all"),
            "invalid argument: --shards requires one --queue",
        ),
        (("jobs:ship", "-q", "a", "--server", "e=x"), "invalid argument: --server requires --shards"),
        (
            ("jobs:ship", "-q", "a", "--shards", "all", "--server", "e"),
            "invalid argument: --server must be NAME=DSN",
        ),
        (
            ("jobs:ship", "-q", "a", "--shards", "all", "--server", "postgresql://ada:secret@east/shop"),
            "invalid argument: --server must be NAME=DSN",
        ),
        (("jobs:ship", "-q", "orders", "--lease", "0"), "invalid argument: lease must be at least 0.1 s"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_makes_no_sense_is_refused_with_a_line(
    client: Client,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    text: str,
) -> None:
    program = (
        "from spanmq.tasks import Tasks\ntasks = Tasks('a')\nothers = Tasks('b')\ndef ship(message): ...\n"
        "@tasks.task\ndef task(): ...\n"
    )
    (tmp_path / "jobs.py").write_text(program)
    (tmp_path / "broken.py").write_text("raise RuntimeError('no configuration')\n")
    monkeypatch.chdir(tmp_path)
    for module in ("jobs", "broken"):  # which another test may have imported from a folder of its own
        monkeypatch.delitem(sys.modules, module, raising=False)
    done = spanmq("worker", *arguments, dsn=database)
    assert done.code == 1
    assert f"spanmq: {text}" in done.err
    assert "Traceback" not in done.err
    assert "secret" not in done.err


def test_worker_runs_the_tasks_of_several_modules_and_creates_their_queues(
    database: str, tmp_path: Path
) -> None:
    (tmp_path / "depot.py").write_text(
        "import os, signal\nfrom spanmq.tasks import Tasks\ntasks = Tasks('depot')\n"
        "@tasks.task\ndef end() -> None:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    (tmp_path / "billing.py").write_text(
        "from depot import tasks\n@tasks.periodic('0 0 1 1 *')\n@tasks.task(queue='bills')\ndef bill(): ...\n"
    )
    with Client(database) as client:
        client.queues.create("Depot")
        client.send("Depot", {"task": "end", "args": {}})
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "spanmq.cli",
                    "worker",
                    "depot.tasks",
                    "billing:tasks",
                    "--create-queues",
                )
            ],
            env={**os.environ, "SPANMQ_DSN": database},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert [each.name for each in client.queues.list()] == ["Depot", "bills"]
        assert [each.queue for each in client.schedules.list()] == ["bills"]
