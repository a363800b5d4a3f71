"""`spanmq simulate` refuses what makes no sense."""

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
        (["--work", "uniform:1"], "the work 'uniform:1' is not valid"),
        (["--work", "fixed:x"], "contains a value that is not a number"),
        (["--engine", "rabbit"], "engine 'rabbit' does not exist"),
        (["--failure-category", "ODD"], "category 'ODD' does not exist"),
        (["--producer", "rabbit"], "producer 'rabbit' does not exist"),
        (["--producer", "spark", "--rate", 5], "no rate, no long transactions, one producer"),
        (["--producer", "spark", "--producers", 2], "no rate, no long transactions, one producer"),
        (["--producer", "spark", "--engine", "polling"], "not to the table of polling"),
        (["--from", "none.jsonl", "--key", "a"], "none.jsonl can't be read"),
        (["--from", "none.jsonl"], "a key field is required"),
        (["--key", "a"], "a key field is required"),
        (["--from", "bad.jsonl", "--key", "a"], "line 1 of bad.jsonl is not a JSON object with a field 'a'"),
        (["-logfile", "none/a.log"], "the log file none/a.log cannot be written"),
        (["--plot", "a.gif"], "the chart must be a .png or .svg file"),
        (["--plot", "none/a.png"], "does not exist"),
        (["-dsn", "postgresql://localhost:1/x"], "connection failed"),
        (["--engine", "polling", "-schema", "none.sql"], "none.sql can't be read"),
        (["--engine", "polling", "-schema", "bad.sql"], "the schema in bad.sql failed: syntax error"),
        (["--engine", "polling", "-schema", "other.sql"], "does not create a table msg_queue with msg_id"),
        (["--engine", "polling", "--next-msg", "bad.sql"], "the statement in next_msg.sql failed"),
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
