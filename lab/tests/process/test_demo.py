"""The demo: what it does, what it finds when something went wrong, and that it leaves nothing behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import Done, ask, do, finish, run, started, wait_until

from spanmq_lab.demo.audit import Tally, compare, tally_file
from spanmq_lab.demo.flights import ROWS, find_file, group_of, read_flights

QUEUE = "spanmq_demo_flights"
MEMORY_MAX = 200_000_000

# Does something to every archive that is made from now on: how a superuser gets between queue and archive.
SABOTAGE = """
create function public.sabotage() returns trigger language plpgsql as $$ begin {} end $$;
create function public.on_archive() returns event_trigger language plpgsql as $$
declare
    made record;
begin
    for made in
        select * from pg_event_trigger_ddl_commands()
        where object_type = 'table' and object_identity like 'pgmq.a\\_%'
    loop
        execute format(
            'create trigger sabotage before insert on %s for each row execute function public.sabotage()',
            made.object_identity);
    end loop;
end $$;
create event trigger sabotage on ddl_command_end when tag in ('CREATE TABLE')
    execute function public.on_archive();
"""


def demo(*arguments: str | int, dsn: str) -> Done:
    return run("demo", "--json", *arguments, dsn=dsn)


def reported(done: Done, *, code: int) -> dict[str, Any]:
    assert done.code == code, done.err
    [report] = done.records
    return report


def test_demo_on_a_database_checks_out_and_leaves_nothing(database: str) -> None:
    report = reported(demo("--rows", "3000", "--consumers", "2", dsn=database), code=0)
    assert (report["rows"], report["consumers"], report["queue"]) == (3000, 2, QUEUE)
    assert all(check["passed"] for check in report["checks"])
    assert len(report["checks"]) == 4
    assert min(report["send_rate"], report["settle_rate"], report["wal_bytes"], report["archive_bytes"]) > 0
    assert 0 < report["peak_memory_bytes"] < MEMORY_MAX
    assert report["checksum"] == tally_file(find_file(), 3000, lambda *_: None).checksum
    assert ask(database, "select count(*) from pgmq.list_queues()") == 0


def test_kept_queue_holds_the_flights_of_the_file(database: str) -> None:
    reported(demo("--rows", "2000", "--keep", dsn=database), code=0)
    first = next(read_flights(find_file(), 1))
    assert ask(database, f"select message from pgmq.a_{QUEUE} order by msg_id limit 1") == first
    assert first["tailnum"] == "N14228"
    groups = f"select count(*) from pgmq.a_{QUEUE} where headers->>'x-pgmq-group' = message->>'tailnum'"
    ungrouped = f"select count(*) from pgmq.a_{QUEUE} where headers is null and message->'tailnum' = 'null'"
    assert ask(database, groups) + ask(database, ungrouped) == 2000
    assert ask(database, ungrouped) > 0
    # Somebody's queue is not touched.
    again = demo("--rows", "10", dsn=database)
    assert again.code == 1
    told = json.loads(again.err)["error"]
    assert (told["code"], told["message"]) == ("error", f"queue {QUEUE} exists already")
    assert told["hint"].startswith("spanmq queue drop")
    assert ask(database, f"select count(*) from pgmq.a_{QUEUE}") == 2000


@pytest.mark.parametrize(
    ("deed", "failed"),
    [
        (
            """new.message := case new.msg_id when 7 then jsonb_set(new.message, '{distance}', '1')
                                                else new.message end; return new;""",
            {"nothing changed"},
        ),
        (
            "new.headers := case new.msg_id when 7 then '{}' else new.headers end; return new;",
            {"nothing changed"},
        ),
        ("return case new.msg_id when 7 then null else new end;", {"nothing lost", "nothing changed"}),
        (
            """if new.msg_id = 7 then
                   execute format('insert into %s select ($1).*', tg_relid::regclass)
                       using jsonb_populate_record(new, '{"msg_id": 100007}');
               end if;
               return new;""",
            {"nothing duplicated", "nothing changed"},
        ),
    ],
    ids=["changed body", "changed headers", "lost", "duplicated"],
)
def test_demo_finds_what_went_wrong(database: str, deed: str, failed: set[str]) -> None:
    do(database, SABOTAGE.format(deed))
    report = reported(demo("--rows", "500", dsn=database), code=1)
    assert {check["name"] for check in report["checks"] if not check["passed"]} == failed


def test_failed_check_stands_in_the_table(database: str) -> None:
    do(database, SABOTAGE.format("return case new.msg_id when 7 then null else new end;"))
    done = run("demo", "--rows", 500, dsn=database)
    assert done.code == 1
    assert "NO: 500 in the file, 499 in the archive" in done.out


def test_message_left_in_the_queue_fails() -> None:
    checks = compare(Tally(), Tally(), left=1)
    assert [check.name for check in checks if not check.passed] == ["nothing left in the queue"]


def test_two_copies_are_not_none() -> None:
    once, thrice = Tally(), Tally()
    once.add({"a": 1}, None)
    for _ in range(3):
        thrice.add({"a": 1}, None)
    assert once.checksum != thrice.checksum
    swapped = Tally()
    swapped.add({"a": 1}, {"b": 2})
    assert swapped.checksum != once.checksum


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_demo_drops_its_queue(database: str, number: signal.Signals) -> None:
    with started("demo", dsn=database) as process:
        wait_until(lambda: ask(database, f"select to_regclass('pgmq.a_{QUEUE}')") is not None, process)
        wait_until(lambda: ask(database, f"select count(*) from pgmq.a_{QUEUE}") > 0, process)
        process.send_signal(number)
        done = finish(process)
    assert (done.code, done.out) == (128 + number, "")
    assert done.err.endswith("spanmq: interrupted\n")
    assert ask(database, "select count(*) from pgmq.list_queues()") == 0


def test_error_of_a_consumer_ends_the_demo(database: str) -> None:
    do(database, SABOTAGE.format("raise exception 'the archive is full' using errcode = '53100';"))
    done = run("demo", "--rows", 20_000, dsn=database)
    assert done.code == 1
    assert "spanmq: server exhausted: the archive is full" in done.err
    assert ask(database, "select count(*) from pgmq.list_queues()") == 0


def test_database_without_leases_is_refused(upstream_database: str, empty_database: str) -> None:
    assert run("demo", dsn=upstream_database).err.startswith("spanmq: not supported by upstream: ")
    assert run("demo", dsn=empty_database).err.startswith("spanmq: schema missing: ")
    assert ask(upstream_database, "select count(*) from pgmq.list_queues()") == 0


def test_demo_from_nothing_starts_its_own_server() -> None:
    done = run("demo", "--rows", 5000, dsn=None)
    assert done.code == 0
    assert done.err.startswith("starting a PostgreSQL server\n")
    assert "nothing changed            yes" in done.out


def test_flights_are_typed_and_all_there() -> None:
    path = find_file()
    flights = list(read_flights(path, 2000))
    late = next(flight for flight in flights if flight["dep_time"] is None)
    assert (late["arr_time"], late["air_time"]) == (None, None)
    assert {type(value) for flight in flights for value in flight.values()} == {int, str, type(None)}
    assert {type(group_of(flight)) for flight in flights} == {str, type(None)}
    assert sum(1 for _ in read_flights(path, 10**9)) == ROWS


def test_demo_imports_no_pandas() -> None:
    program = (
        "import sys; from spanmq_lab.demo.flights import find_file, read_flights;"
        "next(read_flights(find_file(), 1)); sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("manifest", [None, "orders-00000001.json"])
def test_lake_that_is_not_of_a_demo_is_refused_at_once_and_kept(
    tmp_path: Path, database: str, manifest: str | None
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    if manifest is not None:
        (lake / "_spanmq/archive").mkdir(parents=True)
        (lake / "_spanmq/archive" / manifest).write_text("{}")
    (lake / "precious").write_text("data")
    done = demo("--rows", 10, "--export", str(tmp_path), dsn=database)
    assert (done.code, done.out) == (1, "")
    told = json.loads(done.err)["error"]
    assert told["code"] == "invalid_argument"
    assert told["message"] == f"{lake} exists, and was not created by an earlier demo"
    assert (lake / "precious").read_text() == "data"


def test_folder_that_can_not_be_written_is_refused_at_once(tmp_path: Path, database: str) -> None:
    (tmp_path / "file").touch()
    done = demo("--rows", 10, "--export", str(tmp_path / "file/folder"), dsn=database)
    assert (done.code, done.out) == (1, "")
    assert "can't be made: Not a directory" in done.err
