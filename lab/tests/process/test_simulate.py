"""Whole runs: each engine, what is done to it, and what the audit says of it."""

import json
import signal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from lab.tests.process.running import objections, report, simulate, started
from tests.cli.program import ask, do, finish, wait_until

ENGINES = ("spanmq", "polling", "polling-indexed")
SCHEMAS = "select count(*) from pg_namespace where nspname like 'simulate%'"
QUEUES = "select count(*) from pgmq.list_queues()"
SESSIONS = (
    "select count(*) from pg_stat_activity"
    " where datname = current_database() and application_name like 'simulate%'"
)
# Claims that do not do what they should. They are a user's files: the engine runs what it is given.
ANY_ROW = """
update msg_queue set status = 'P' where msg_id = (
    select msg_id from msg_queue where queue_type = $1 and status = 'N' order by random() limit 1
    for update skip locked)
returning msg_id, queue_type, order_id"""
TWO_ROWS = """
with head as (
    select msg_id from msg_queue where queue_type = $1 and status = 'N'
    order by time_added, msg_id limit 2 for update skip locked),
taken as (update msg_queue set status = 'P' where msg_id in (select msg_id from head) returning msg_id)
select min(msg_id) as msg_id from taken having count(*) > 0"""
AGAIN = """
select msg_id from msg_queue where queue_type = $1
order by time_processed nulls first, time_added, msg_id limit 1 for update skip locked"""


def left_behind(dsn: str) -> tuple[Any, Any]:
    return ask(dsn, SCHEMAS), ask(dsn, QUEUES)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_handles_everything_in_order(database: str, tmp_path: Path, engine: str) -> None:
    found = report("--engine", engine, "--fill-db", 150, "--workers", 6, dsn=database, folder=tmp_path)
    assert (found["engine"], found["sent"], found["handled"], found["left"]) == (engine, 150, 150, 0)
    assert objections(found) == {}
    assert len(found["checks"]) == 11
    assert found["rate"] > 0
    assert found["table_bytes"] > 0
    assert found["wal_bytes"] > 0
    assert found["steps"][-1]["backlog"] == 0
    assert found["send_to_done"]["p50"] > found["send_to_start"]["p50"] > 0
    assert left_behind(database) == (0, 0)
    log = [json.loads(line) for line in (tmp_path / "msg_queue.log").read_text().splitlines()]
    assert len({record["id"] for record in log if record["event"] == "done"}) == 150


def test_flags_of_the_classic_tool_take_one_dash(database: str, tmp_path: Path) -> None:
    classic = ["-fill-db", "60", "-workers=4", "-rate", "200.5", "-delmsg", "-logfile", "a.log", "-dsn"]
    found = report(*classic, database, dsn="postgresql://localhost:1/not-this-one", folder=tmp_path)
    options = found["options"]
    assert (options["fill_db"], options["workers"], options["rate"]) == (60, 4, 200.5)
    assert options["delmsg"] is True
    assert 0 < found["rate_reached"] <= found["rate_asked"] == 200.5
    assert (tmp_path / "a.log").exists()


def test_log_may_go_to_stdout(database: str, tmp_path: Path) -> None:
    done = simulate("-fill-db", 20, "-logfile", "-", "--json", dsn=database, folder=tmp_path)
    assert done.code == 0
    assert [each["event"] for each in done.records[:1]] == ["run_started"]
    assert sum(each.get("event") == "done" for each in done.records) == 20
    assert done.records[-1]["passed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("engine", "table"), [("spanmq", "pgmq.a_{}_type1"), ("polling", "{}.msg_queue")])
def test_handled_messages_are_kept_unless_they_are_to_be_deleted(
    database: str, tmp_path: Path, engine: str, table: str
) -> None:
    for flags, kept in (((), 15), (("--delmsg",), 0)):
        few = ["--engine", engine, "-fill-db", 15, "--types", 1, "--keep", *flags]
        done = simulate(*few, dsn=database, folder=tmp_path)
        name = done.err.split("kept: ")[1].split("\n")[0].partition("_type1")[0].partition(".")[0]
        assert ask(database, f"select count(*) from {table.format(name)}") == kept


def test_failures_poison_and_killed_workers_do_not_break_the_order(database: str, tmp_path: Path) -> None:
    hard = ["--failure-rate", 0.1, "--poison", 0.03, "--max-attempts", 3, "--backoff", 0.01]
    # Half a second of work for each worker: the first is killed after a third of one, however fast the machine is.
    hard += ["--work", "uniform:5:15"]
    found = report(
        *["-fill-db", 250, "-workers", 6, "--keys", 8, "--lease", 1, "--kill-every", 0.3, "--batch", 8],
        *hard,
        dsn=database,
        folder=tmp_path,
    )
    assert objections(found) == {}
    assert found["handled"] + found["dead"] == 250
    assert min(found["dead"], found["failed"], found["killed"], found["delivered_again"]) > 0


def test_poison_that_kills_its_workers_is_given_up_and_takes_no_other_with_it(
    database: str, tmp_path: Path
) -> None:
    found = report(
        *["-fill-db", 60, "--keys", 5, "--poison", 0.05, "--poison-kills", "--max-attempts", 2],
        *["--lease", 1, "--batch", 4],
        dsn=database,
        folder=tmp_path,
    )
    assert objections(found) == {}
    assert found["handled"] + found["dead"] == 60
    assert found["dead"] > 0
    # Each died with its worker in the end. An attempt may have gone with the worker of another poison.
    assert found["restarted"] >= found["dead"]


def test_failed_attempts_of_a_table_are_made_again(database: str, tmp_path: Path) -> None:
    found = report(
        *["--engine", "polling-indexed", "-fill-db", 100, "--failure-rate", 0.2, "--kill-every", 0.3],
        dsn=database,
        folder=tmp_path,
    )
    assert objections(found) == {}
    assert found["handled"] == 100
    assert found["failed"] > 0


def test_producers_in_long_transactions_keep_their_order(database: str, tmp_path: Path) -> None:
    found = report(
        *["-fill-db", 200, "--rate", 400, "--producers", 3, "--transaction", 0.2, "--hold-snapshot"],
        dsn=database,
        folder=tmp_path,
    )
    assert objections(found) == {}
    assert found["handled"] == 200


def test_duration_ends_a_run_and_nothing_is_lost(database: str, tmp_path: Path) -> None:
    found = report("--duration", 1, "--fill-db", 2000, "--workers", 2, dsn=database, folder=tmp_path)
    assert found["ending"] == "time"
    assert found["handled"] > 0
    assert objections(found) == {}


@pytest.mark.parametrize(
    ("claim", "objection"),
    [(ANY_ROW, "order kept in each key"), (TWO_ROWS, "nothing lost"), (AGAIN, "nothing duplicated")],
    ids=["any row", "two rows", "again"],
)
def test_broken_engine_is_found_out(database: str, tmp_path: Path, claim: str, objection: str) -> None:
    # Where the program is started, as the classic tool has it.
    (tmp_path / "next_msg.sql").write_text(claim)
    found = report(
        *["--engine", "polling", "-fill-db", 60, "-workers", 6, "--duration", 4],
        dsn=database,
        folder=tmp_path,
        code=1,
    )
    assert objection in objections(found)
    assert len(objections(found)[objection]) > 0


def test_messages_of_one_time_block_their_key_for_ever(database: str, tmp_path: Path) -> None:
    ties = ["-fill-db", 30, "--same-time", "--idle-sleep", 0.2]
    found = report("--engine", "polling", *ties, "--patience", 3, dsn=database, folder=tmp_path, code=1)
    assert (found["ending"], found["handled"]) == ("stalled", 0)
    assert set(objections(found)) == {"every key made progress"}
    assert len(objections(found)["every key made progress"]) == 6
    corrected = report("--engine", "polling-indexed", *ties, dsn=database, folder=tmp_path)
    assert corrected["handled"] == 30


def test_real_data_keeps_its_keys(database: str, tmp_path: Path) -> None:
    rows = [{"customer": f"c {number % 7}", "total": number} for number in range(50)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = ["--from", "rows.jsonl", "--key", "customer"]
    found = report(*source, dsn=database, folder=tmp_path)
    assert (found["handled"], objections(found)) == (50, {})
    found = report(*source, "--engine", "polling-indexed", dsn=database, folder=tmp_path)
    assert found["handled"] == 50
    found = report("--from", "flights", "-fill-db", 100, dsn=database, folder=tmp_path)
    assert found["handled"] == 100
    assert '"key":"N14228"' in (tmp_path / "msg_queue.log").read_text()


def test_interrupted_run_is_audited_and_leaves_nothing(database: str, tmp_path: Path) -> None:
    log = tmp_path / "msg_queue.log"
    for engine in ("spanmq", "polling"):
        with started(
            "--engine", engine, "-fill-db", 5000, "--json", dsn=database, folder=tmp_path
        ) as process:
            wait_until(lambda: log.exists() and b'"event":"done"' in log.read_bytes(), process)
            process.send_signal(signal.SIGINT)
            done = finish(process)
        assert done.code == 130, done.err
        assert done.err.endswith("spanmq: interrupted\n")
        [found] = done.records
        assert (found["ending"], objections(found)) == ("interrupted", {})
        assert 0 < found["handled"] < 5000
        assert left_behind(database) == (0, 0)
        # The server may notice a moment later that a session has ended.
        wait_until(lambda: ask(database, SESSIONS) == 0)
        log.unlink()


def test_comparison_runs_all_engines_twice(database: str, tmp_path: Path) -> None:
    done = simulate(
        *["--compare", "-fill-db", 60, "-workers", 3, "--duration", 100, "--plot", "a.png"],
        dsn=database,
        folder=tmp_path,
    )
    assert done.code == 0, done.err
    assert "psycopg" not in done.err
    assert [line.split()[0] for line in done.out.splitlines()] == ["ENGINE", *ENGINES]
    assert done.out.count("60, 60") == 3
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_database_without_the_schema_is_refused(empty_database: str, tmp_path: Path) -> None:
    done = simulate(dsn=empty_database, folder=tmp_path)
    assert (done.code, done.err.splitlines()[0].split(":")[1]) == (1, " schema missing")
    found = report("--engine", "polling", "-fill-db", 10, dsn=empty_database, folder=tmp_path)
    assert found["handled"] == 10


def test_schema_file_that_lies_here_makes_the_table(database: str, tmp_path: Path) -> None:
    ours = files("spanmq_lab").joinpath("sql/schema.sql").read_text()
    (tmp_path / "schema.sql").write_text(f"{ours};create table mine ();")
    done = simulate(
        "--engine", "polling", "-fill-db", 5, "--work", "fixed:0", "--keep", dsn=database, folder=tmp_path
    )
    assert done.code == 0, done.err
    schema = done.err.split("kept: ")[1].partition(".")[0]
    assert ask(database, f"select count(*) from {schema}.mine") == 0


def test_somebodys_table_is_not_touched(database: str, tmp_path: Path) -> None:
    do(database, "create table public.msg_queue (mine text)", "insert into public.msg_queue values ('kept')")
    report("--engine", "polling", "-fill-db", 10, dsn=database, folder=tmp_path)
    assert ask(database, "select mine from public.msg_queue") == "kept"
