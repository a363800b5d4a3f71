"""`spanmq worker` refuses what makes no sense."""

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
        (("jobs:ship",), "invalid argument: a function needs a --queue"),
        (("jobs:task", "-q", "orders"), "invalid handler: <task 'task' of queue 'a'> is not a handler"),
        (("jobs:tasks", "--shards", "all"), "invalid argument: --shards and --in-batches are for a function"),
        (("jobs:ship", "-q", "no_such_queue"), "queue not found"),
        (("jobs:ship", "-q", "orders", "--shards", "all"), "queue not found: orders has no shards"),
        (
            ("jobs:ship", "-q", "a", "-q", "b", "--shards", "all"),
            "invalid argument: --shards is for one --queue",
        ),
        (("jobs:ship", "-q", "a", "--server", "e=x"), "invalid argument: --server is for a sharded queue"),
        (
            ("jobs:ship", "-q", "a", "--shards", "all", "--server", "e"),
            "invalid argument: --server is NAME=DSN",
        ),
        (
            ("jobs:ship", "-q", "a", "--shards", "all", "--server", "postgresql://ada:secret@east/shop"),
            "invalid argument: --server is NAME=DSN",
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
        "from spanmq.tasks import Tasks\ntasks = Tasks('a')\ndef ship(message): ...\n"
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
