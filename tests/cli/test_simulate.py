"""`spanmq simulate` refuses what makes no sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import ask, spanmq

SCHEMAS = "select count(*) from pg_namespace where nspname like 'simulate%'"


QUEUES = "select count(*) from pgmq.list_queues()"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-workers", 0], "workers must be above 0, got 0"),
        (["-workers", 5000], "5000 workers need 10005 connections, and the server has"),
        (["-fill-db", -1], "fill-db must be between 1 and"),
        (["-rate", 0], "rate must be above 0, got 0.0"),
        (["-rate", "nan"], "rate must be a number, got nan"),
        (["--failure-rate", 1.5], "failure-rate must be between 0 and 1, got 1.5"),
        (["--skew", -1], "skew must not be negative"),
        (["--work", "uniform:1"], "there is no work 'uniform:1'"),
        (["--work", "fixed:x"], "holds what is no number"),
        (["--engine", "rabbit"], "there is no engine 'rabbit'"),
        (["--failure-category", "ODD"], "there is no category 'ODD'"),
        (["--producer", "rabbit"], "there is no producer 'rabbit'"),
        (["--producer", "spark", "--rate", 5], "no rate, no long transactions, one producer"),
        (["--producer", "spark", "--producers", 2], "no rate, no long transactions, one producer"),
        (["--producer", "spark", "--engine", "polling"], "not into the table of polling"),
        (["--from", "none.jsonl", "--key", "a"], "none.jsonl can't be read"),
        (["--from", "none.jsonl"], "needs the field that is the key"),
        (["--key", "a"], "needs the field that is the key"),
        (["--from", "bad.jsonl", "--key", "a"], "line 1 of bad.jsonl is no JSON object with a field 'a'"),
        (["-logfile", "none/a.log"], "the log file none/a.log can't be written"),
        (["--plot", "a.gif"], "a picture is a .png or an .svg"),
        (["--plot", "none/a.png"], "there is no folder"),
        (["-dsn", "postgresql://localhost:1/x"], "connection failed"),
        (["--engine", "polling", "-schema", "none.sql"], "none.sql can't be read"),
        (["--engine", "polling", "-schema", "bad.sql"], "the schema in bad.sql is refused: syntax error"),
        (["--engine", "polling", "-schema", "other.sql"], "makes no table msg_queue with msg_id"),
        (["--engine", "polling", "--next-msg", "bad.sql"], "the statement in next_msg.sql is refused"),
        (["--engine", "polling", "--next-msg", "one.sql"], "returns no msg_id in its first column"),
    ],
)
def test_bad_input_is_refused(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[Any], said: str
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"b": 1}\n')
    (tmp_path / "bad.sql").write_text("make it so")
    (tmp_path / "other.sql").write_text("create table other ()")
    (tmp_path / "one.sql").write_text("select 1 as one where $1 <> ''")
    monkeypatch.chdir(tmp_path)
    done = spanmq("simulate", *arguments, dsn=database)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert "Traceback" not in done.err
    assert (ask(database, SCHEMAS), ask(database, QUEUES)) == (0, 0)
