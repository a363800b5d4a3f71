"""README.md: what it shows works as shown, in its order, and where it points there is something."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from tests.cli.program import PROGRAM, ask, environment, wait_until
from tests.patience import WAIT_SECONDS
from typer.testing import CliRunner

from spanmq.cli.app import VERBS, app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text("utf-8")
COMMANDS = re.findall(r"^    spanmq (.*)$", TEXT, re.MULTILINE)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def test_its_program_runs(empty_database: str, capsys: pytest.CaptureFixture[str]) -> None:
    (program, _) = blocks("python")
    exec(compile(program, "README.md", "exec"), {"dsn": empty_database})
    assert capsys.readouterr().out == "{'order': 17} 1\n"
    assert ask(empty_database, "select count(*) from pgmq.q_orders") == 0


def test_its_sql_runs(database: str) -> None:
    (statements,) = blocks("sql")
    with psycopg.connect(database, autocommit=True) as connection:
        rows = [connection.execute(each.encode()).fetchall() for each in statements.strip().split("\n")]
    assert [len(each) for each in rows] == [1, 1, 1, 1]
    assert rows[-1] == [(True,)]


def test_its_commands_run_and_its_worker_handles(empty_database: str, tmp_path: Path) -> None:
    (_, program) = blocks("python")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/tasks.py").write_text(program)
    seen = set()
    for command in COMMANDS:
        words = shlex.split(command.split("#")[0].split(";")[0].replace("postgresql://…", empty_database))
        name = " ".join(words[:1] if words[0] in VERBS else words[:2])
        seen.add(name)
        if name == "worker":
            CliRunner().invoke(
                app,
                ["send", "orders", '{"task": "ship", "args": {"order": 16}}'],
                env={"SPANMQ_DSN": empty_database},
            )
            with subprocess.Popen(
                [*PROGRAM, *words],
                cwd=tmp_path,
                env=environment(empty_database, {"PYTHONUNBUFFERED": "1"}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "shipped 16\n"
                wait_until(lambda: ask(empty_database, "select count(*) from pgmq.q_orders") == 0)
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=WAIT_SECONDS)
                assert process.returncode == 0
            continue
        done = CliRunner().invoke(app, words, env={"SPANMQ_DSN": empty_database})
        if name == "schema adopt":
            # Of a database that `install` has been to there is nothing to take over.
            assert (done.exit_code, "not PGMQ" in done.stderr) == (1, True)
            CliRunner().invoke(app, ["queue", "create", "orders"], env={"SPANMQ_DSN": empty_database})
        else:
            assert done.exit_code == 0, (command, done.output)
    assert seen >= {
        "schema install",
        "schema adopt",
        "worker",
        "send",
        "receive",
        "message peek",
        "queue metrics",
    }


def test_where_it_points_there_is_something() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", TEXT):
        assert (ROOT / target).exists(), target
