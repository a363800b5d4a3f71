"""DuckLakes: an export is one transaction of the database that has the catalogue; DuckDB reads what they hold."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from spark.tests.conftest import new_role
from spark.tests.restored import copied
from spark.tests.test_goes_back import SESSION, archived, lost_of, repaired, retained, rows_of, run, words
from spark.tests.test_matrix import DUCKLAKE_STEPS
from tests import patience
from tests.cli.program import ask, do
from tests.documented import run_programs

from spanmq.client import Client
from spanmq.errors import (
    InvalidArgumentError,
    MissingPrivilegeError,
    PipelineError,
    PositionUnknownError,
    SpanmqError,
)
from spanmq.testing.databases import with_database
from spanmq_spark import rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.ducklake import run as ducklake_run
from spanmq_spark.jobs.ducklake.catalogue import Catalogue
from spanmq_spark.jobs.export import export
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import known_table
from spanmq_spark.jobs.lake_lock import Seen
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.repairs import moved, orphans, restored
from spanmq_spark.reader import extent_of

duck = pytest.importorskip("spark.tests.duck")

BODIES = [None, "", "ü\u2028\"'", {"a": [1, 2.50, None], "A": {}}, "x" * 100_000, 12345678901234567890]
# The ends of what Python, PostgreSQL, Parquet and DuckDB share, and a time before 1970.
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
]
NAME = "Ünder/a=b %41 c"


def counted(dsn: str, lake: Path) -> dict[str, int]:
    """Return the first words of the bodies that DuckDB reads, which must be those that the files have."""
    found = words([body for (body,) in duck.rows(dsn, lake, "select body from lake.archive")])
    assert rest_of(dsn, lake) == found
    return dict(found)


def rest_of(dsn: str, lake: Path) -> Any:
    """Return the first words of what Spark's readers read: the rows of the files, but for those that are deleted."""
    place = lake_at(lake)
    table = known_table(dsn, place, "archive")
    found = parquet.read(place, table.read("orders"), ["body"], None, table.deleted("orders"))
    return words([body for batch in found for body in batch.column(0).to_pylist()])


def files_in(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")}


@pytest.mark.parametrize("table", ["archive", "dead_letters"])
def test_all_columns_come_back_in_duckdb(client: Client, database: str, tmp_path: Path, table: str) -> None:
    client.queues.create(NAME)
    client.send_batch(NAME, BODIES, headers=[{"x-pgmq-group": "g'1\"", "n": n} for n in range(len(BODIES))])
    messages = client.receive(NAME, 10)
    if table == "archive":
        client.archive(NAME, [each.message_id for each in messages])
        with psycopg.connect(database, autocommit=True) as connection:
            name = rows.view(client_of(connection), NAME, "a").replace("%", "%%")
            for n, time in enumerate(TIMES, 1):
                connection.execute(f"update {name} set archived_at = %s where msg_id = %s", [time, n])
    else:
        client.reject(messages, "bad")
    assert export(SESSION, database, NAME, tmp_path, table=table, format="ducklake").exported == len(BODIES)
    columns = TABLES[table].schema.names
    with psycopg.connect(database) as connection:
        server = client_of(connection)
        extent = extent_of(server, NAME, table)
        quoted = "'" + NAME + "'"
        expressions = [
            each.expression.format(queue=quoted, attempt="t.read_ct") for each in TABLES[table].columns
        ]
        source = extent.source(1, 1 << 40)
        expected = connection.execute(
            f"select {', '.join(expressions)} from {source} t order by {extent.key}"
        ).fetchall()
    listed = ", ".join(f'"{name}"' for name in columns)
    query = f"select {listed}, day from lake.{table} order by {TABLES[table].id}"
    with duck.attached(database, tmp_path) as lake:
        found = lake.execute(query).to_arrow_table().to_pylist()
        assert [tuple(row[name] for name in columns) for row in found] == expected
        # A file is left out by what is known of its columns: no row may be.
        for name in columns:
            for row in found:
                equal = f'select count(*) from lake.{table} where "{name}" is not distinct from ?'
                [n] = lake.execute(equal, [row[name]]).fetchone()
                assert n == sum(each[name] == row[name] for each in found), (name, row[name])
            for sign in ("is null", "is not null"):
                [n] = lake.execute(f'select count(*) from lake.{table} where "{name}" {sign}').fetchone()
                assert n == sum((each[name] is None) == (sign == "is null") for each in found), (name, sign)
    # The specification's query for pruning skips a file of whose column nothing is known.
    with psycopg.connect(database) as connection:
        query = (
            "select array_agg(s.column_id order by s.column_id) from {0}.ducklake_data_file d"
            " join {0}.ducklake_file_column_stats s using (data_file_id) group by d.path"
        )
        for (ids,) in connection.execute(query.format(f'"ducklake_{tmp_path.name}"')):
            assert ids == list(range(1, len(columns) + 2))
    at = TABLES[table].at
    assert all(row["day"] == f"{row[at].year:04}-{row[at]:%m-%d}" for row in found)


def client_of(connection: psycopg.Connection[Any]) -> Client:
    return Client(connection=connection)


# Of an export with new rows; one without any takes only the step that is left out. Each is a process that imports all;
# test_matrix.py cuts exports off in this one.
KILLS = random.Random(int(os.environ.get("SPANMQ_TEST_SEED", "1"))).sample(
    [
        (step, when)
        for step in DUCKLAKE_STEPS
        if not step.endswith("CatalogueRun.note")
        for when in ("before", "after")
    ],
    14 if os.environ.get("SPANMQ_TEST_DEEP") else 2,
)


@pytest.mark.deeper
@pytest.mark.parametrize(("step", "when"), KILLS)
def test_export_that_is_killed_is_whole_or_nothing(dsn: str, tmp_path: Path, step: str, when: str) -> None:
    lake = tmp_path / "lake"
    archived(dsn, "one", 5)
    run(dsn, lake, "ducklake")
    archived(dsn, "two", 4)
    program = [sys.executable, "-m", "spark.tests.killed_export", dsn, str(lake), step, when]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    is_committed = step.endswith("Run.commit") and when == "after"
    assert counted(dsn, lake) == ({"one": 5, "two": 4} if is_committed else {"one": 5})
    archived(dsn, "three", 3)
    assert run(dsn, lake, "ducklake").exported == (3 if is_committed else 7)
    assert counted(dsn, lake) == {"one": 5, "two": 4, "three": 3}
    # Only where it was killed after it had written a file is there one that counts nowhere.
    found = orphans(dsn, "orders", lake).names
    is_written = not is_committed
    assert bool(found) == is_written
    assert orphans(dsn, "orders", lake, delete=True).names == found
    assert orphans(dsn, "orders", lake).names == []
    assert counted(dsn, lake) == {"one": 5, "two": 4, "three": 3}


def test_restored_database_takes_queue_archive_and_lake_back_together(
    dsn: str, spanmq_server: str, tmp_path: Path
) -> None:
    archived(dsn, "before", 6)
    run(dsn, tmp_path, "ducklake")
    went_back = copied(dsn, spanmq_server)
    archived(dsn, "lost", 5)
    run(dsn, tmp_path, "ducklake")
    retained(dsn)
    went_back()
    assert counted(dsn, tmp_path) == {"before": 6}
    archived(dsn, "after", 4)
    assert run(dsn, tmp_path, "ducklake").exported == 4
    assert counted(dsn, tmp_path) == {"before": 6, "after": 4}
    assert restored(dsn, "orders", lake=tmp_path).tables == []
    retained(dsn)
    assert ask(dsn, "select count(*) from pgmq.a_orders") == 0
    [name] = orphans(dsn, "orders", tmp_path).names
    assert words(parquet_bodies(tmp_path / name)) == {"lost": 5}


def parquet_bodies(path: Path) -> list[str]:
    import pyarrow.parquet

    return list(pyarrow.parquet.ParquetFile(path).read(["body"])["body"].to_pylist())


def test_rows_of_a_database_that_went_back_are_not_committed(dsn: str, tmp_path: Path) -> None:
    archived(dsn, "one", 3)
    with ducklake_run.run_on(dsn, lake_at(tmp_path), "orders", "archive") as began:
        manifest = began.begin(began.state.source, "ducklake")
        with pytest.raises(PositionUnknownError):
            began.commit(manifest, [], [str(uuid.uuid4())], Seen())
        assert not began.catalogue.exists()
    assert run(dsn, tmp_path, "ducklake").exported == 3


def test_run_that_has_lost_its_lock_commits_nothing(
    client: Client, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(database, "one", 3)
    commit = ducklake_run.CatalogueRun.commit

    def overtaken(this: ducklake_run.CatalogueRun, *given: Any) -> None:
        pid = this.catalogue.server.connection.info.backend_pid
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(%s, 60000)", [pid])
        with monkeypatch.context() as patch:
            patch.setattr(ducklake_run.CatalogueRun, "commit", commit)
            assert run(database, tmp_path, "ducklake").exported == 3
        commit(this, *given)

    monkeypatch.setattr(ducklake_run.CatalogueRun, "commit", overtaken)
    with pytest.raises(SpanmqError):
        run(database, tmp_path, "ducklake")
    monkeypatch.undo()
    assert counted(database, tmp_path) == {"one": 3}
    assert run(database, tmp_path, "ducklake").exported == 0


def test_lake_of_another_program_is_refused(dsn: str, tmp_path: Path) -> None:
    archived(dsn, "one", 1)
    lake, other = tmp_path / "lake", tmp_path / "other" / "lake"
    do(dsn, "create schema ducklake_lake")
    with duck.attached(dsn, lake, data_path=lake) as theirs:
        theirs.execute("create table lake.archive (message_id bigint)")
    with pytest.raises(PipelineError, match="ducklake_lake has a DuckLake that spanmq did not create"):
        run(dsn, lake, "ducklake")
    do(dsn, "alter schema ducklake_lake rename to theirs")
    assert run(dsn, lake, "ducklake").exported == 1
    with pytest.raises(PipelineError, match=f"has the DuckLake of {lake}/, not of {other}/"):
        run(dsn, other, "ducklake")
    with pytest.raises(InvalidArgumentError, match="is too long for a DuckLake"):
        run(dsn, tmp_path / ("x" * 60), "ducklake")
    with pytest.raises(PipelineError, match="is of format ducklake, not parquet"):
        run(dsn, lake, "parquet")
    archived(dsn, "two", 1)
    for change, message in (
        ("alter column attempt set data type bigint", "column attempt of the table archive in the schema"),
        ("set partitioned by (queue)", "is not partitioned by queue and day"),
    ):
        back = copied_catalogue(dsn, lake)
        with duck.attached(dsn, lake) as theirs:
            theirs.execute(f"alter table lake.archive {change}")
        with pytest.raises(PipelineError, match=message):
            run(dsn, lake, "ducklake")
        back()
    assert run(dsn, lake, "ducklake").exported == 1


def copied_catalogue(dsn: str, lake: Path) -> Callable[[], None]:
    from spark.tests.test_goes_back import Catalogue as Copied

    return Copied("ducklake", dsn, lake).copied()


def test_role_without_the_right_to_create_a_schema_is_told_what_to_do(
    client: Client, database: str, tmp_path: Path
) -> None:
    archived(database, "one", 1)
    with new_role(database) as role:
        for verb in ("look", "receive"):
            client.admin.grants.create(role, "orders", verb)
        dsn = psycopg.conninfo.make_conninfo(database, user=role)
        with pytest.raises(MissingPrivilegeError, match="can't create the schema") as caught:
            run(dsn, tmp_path / "lake", "ducklake")
        assert f"create schema ducklake_lake authorization {role}" in str(caught.value.hint)
        do(database, f"create schema ducklake_lake authorization {role}")
        assert run(dsn, tmp_path / "lake", "ducklake").exported == 1


@pytest.mark.parametrize("inlined", [0, 100])
def test_rows_that_duckdb_deletes_stay_deleted(dsn: str, tmp_path: Path, inlined: int) -> None:
    archived(dsn, "person", 4)
    archived(dsn, "other", 4)
    run(dsn, tmp_path, "ducklake")
    with duck.attached(dsn, tmp_path, inlined=inlined) as lake:
        lake.execute("delete from lake.archive where json_extract_string(body, '$') like 'person%'")
    assert counted(dsn, tmp_path) == {"other": 4}
    assert run(dsn, tmp_path, "ducklake").exported == 0
    archived(dsn, "new", 2)
    assert run(dsn, tmp_path, "ducklake").exported == 2
    assert counted(dsn, tmp_path) == {"other": 4, "new": 2}
    # And so that the bodies are in no file.
    with duck.attached(dsn, tmp_path) as lake:
        lake.execute("call ducklake_flush_inlined_data('lake')")
        lake.execute("call ducklake_rewrite_data_files('lake', delete_threshold => 0)")
        lake.execute("call ducklake_expire_snapshots('lake', older_than => now())")
        lake.execute("call ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert counted(dsn, tmp_path) == {"other": 4, "new": 2}
    assert not [path for path in tmp_path.rglob("*.parquet") if "person" in str(path.read_bytes())]
    assert run(dsn, tmp_path, "ducklake").exported == 0


def test_files_that_duckdb_joins_and_expires_go_on(dsn: str, tmp_path: Path) -> None:
    sent = {f"export{n}": 3 for n in range(4)}
    for word, n in sent.items():
        archived(dsn, word, n)
        run(dsn, tmp_path, "ducklake")
    before = files_in(tmp_path)
    assert len(before) == 4
    with duck.attached(dsn, tmp_path) as lake:
        lake.execute("call ducklake_merge_adjacent_files('lake')")
        lake.execute("call ducklake_expire_snapshots('lake', older_than => now())")
        lake.execute("call ducklake_cleanup_old_files('lake', cleanup_all => true)")
        lake.execute("call ducklake_delete_orphaned_files('lake', cleanup_all => true)")
    assert len(files_in(tmp_path)) == 1
    assert counted(dsn, tmp_path) == sent
    archived(dsn, "later", 2)
    assert run(dsn, tmp_path, "ducklake").exported == 2
    assert counted(dsn, tmp_path) == {**sent, "later": 2}


def test_rows_that_duckdb_wrote_into_the_catalogue_are_to_be_flushed_before_they_are_read(
    dsn: str, tmp_path: Path
) -> None:
    archived(dsn, "one", 3)
    run(dsn, tmp_path, "ducklake")
    with duck.attached(dsn, tmp_path, inlined=100) as lake:
        lake.execute("update lake.archive set body = '\"masked\"' where message_id = 2")
        with pytest.raises(PipelineError, match="are in the catalogue, not in files") as caught:
            rest_of(dsn, tmp_path)
        assert "ducklake_flush_inlined_data" in str(caught.value.hint)
        lake.execute("call ducklake_flush_inlined_data('lake')")
    assert counted(dsn, tmp_path) == {"one": 2, "masked": 1}
    assert run(dsn, tmp_path, "ducklake").exported == 0


def test_columns_of_the_user_and_of_a_later_release_are_added(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLES["archive"]
    with monkeypatch.context() as patch:
        # A release whose last column there was not.
        earlier = tuple(each for each in table.columns if each.name != "body")
        last = table.columns[-1]
        assert last.name == "body"
        added = replace(last, name="later", expression="'x' || t.msg_id")
        patch.setitem(TABLES, "archive", table)
        archived(dsn, "one", 2)
        run(dsn, tmp_path, "ducklake")
        patch.setitem(TABLES, "archive", replace(table, columns=(*earlier, last, added)))
        archived(dsn, "two", 2)
        assert run(dsn, tmp_path, "ducklake").exported == 2
        query = "select message_id, later from lake.archive order by message_id"
        assert duck.rows(dsn, tmp_path, query) == [(1, None), (2, None), (3, "x3"), (4, "x4")]
        with duck.attached(dsn, tmp_path) as lake:
            lake.execute("alter table lake.archive add column mine integer default 7")
            lake.execute("alter table lake.archive alter column body set default 'none'")
        archived(dsn, "three", 1)
        assert run(dsn, tmp_path, "ducklake").exported == 1
        query = "select message_id, later, mine from lake.archive order by message_id desc limit 2"
        assert duck.rows(dsn, tmp_path, query) == [(5, "x5", 7), (4, "x4", 7)]
        with duck.attached(dsn, tmp_path) as lake:
            lake.execute("call ducklake_merge_adjacent_files('lake')")
        assert duck.rows(dsn, tmp_path, "select count(*), count(later) from lake.archive") == [(5, 3)]


def test_export_and_a_session_of_duckdb_that_commit_at_the_same_time_both_count(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(dsn, "one", 2)
    run(dsn, tmp_path, "ducklake")
    archived(dsn, "two", 2)
    add = Catalogue.add
    with duck.attached(dsn, tmp_path) as lake:
        lake.execute("create table lake.mine (n bigint)")
        theirs = threading.Thread(target=lambda: lake.execute("insert into lake.mine values (1)"))

        def meanwhile(this: Catalogue, *given: Any) -> None:
            theirs.start()
            with psycopg.connect(dsn, autocommit=True) as connection:
                waiting_for(connection, this.server.connection.info.backend_pid)
            add(this, *given)

        monkeypatch.setattr(Catalogue, "add", meanwhile)
        assert run(dsn, tmp_path, "ducklake").exported == 2
        theirs.join()
    assert counted(dsn, tmp_path) == {"one": 2, "two": 2}
    assert duck.rows(dsn, tmp_path, "select n from lake.mine") == [(1,)]


def waiting_for(connection: psycopg.Connection[Any], pid: int) -> None:
    """Wait until a session waits for that of the export."""
    query = "select pid from pg_stat_activity where %s = any (pg_blocking_pids(pid))"
    patience.wait_until(lambda: connection.execute(query, [pid]).fetchone() is not None)


def test_lake_that_lacks_files_of_its_catalogue_is_refused_and_repaired(dsn: str, tmp_path: Path) -> None:
    for word, n in (("one", 3), ("two", 4)):
        archived(dsn, word, n)
        run(dsn, tmp_path, "ducklake")
    retained(dsn)
    archived(dsn, "three", 5)
    newest = files_in(tmp_path)
    run(dsn, tmp_path, "ducklake")
    [gone] = files_in(tmp_path) - newest
    (tmp_path / gone).unlink()
    for message in ("lacks files of queue orders that its catalogue names", "has been refused since"):
        with pytest.raises(PositionUnknownError, match=message):
            run(dsn, tmp_path, "ducklake")
    retained(dsn)
    table = repaired(dsn, tmp_path)
    assert (table.only_in_lake, table.only_in_database, table.exports, table.gone) == (0, 5, 1, 0)
    assert run(dsn, tmp_path, "ducklake").exported == 5
    assert counted(dsn, tmp_path) == {"one": 3, "two": 4, "three": 5}
    retained(dsn)
    [gone] = files_in(tmp_path) - newest
    (tmp_path / gone).unlink()
    with pytest.raises(PositionUnknownError):
        run(dsn, tmp_path, "ducklake")
    table = repaired(dsn, tmp_path)
    assert (table.gone, table.gone_ids) == (5, "8-12")
    [named] = (tmp_path / "lost").rglob("*.gone.json")
    assert json.loads(named.read_bytes()) == [[8, 12]]
    archived(dsn, "four", 1)
    assert run(dsn, tmp_path, "ducklake").exported == 1
    assert counted(dsn, tmp_path) == {"one": 3, "two": 4, "four": 1}


def test_catalogue_that_went_back_alone_is_refused_and_rows_of_its_later_files_are_kept(
    dsn: str, tmp_path: Path
) -> None:
    archived(dsn, "one", 3)
    run(dsn, tmp_path, "ducklake")
    back = copied_catalogue(dsn, tmp_path)
    archived(dsn, "two", 4)
    run(dsn, tmp_path, "ducklake")
    retained(dsn)
    archived(dsn, "three", 2)
    run(dsn, tmp_path, "ducklake")
    back()
    with pytest.raises(
        PositionUnknownError, match="has export 1 of queue orders as its newest, and the database"
    ):
        run(dsn, tmp_path, "ducklake")
    table = repaired(dsn, tmp_path)
    assert (table.only_in_lake, table.only_in_database, table.exports, table.gone) == (4, 2, 2, 0)
    assert run(dsn, tmp_path, "ducklake").exported == 2
    assert counted(dsn, tmp_path) == {"one": 3, "three": 2}
    # They are a table, which DuckDB's maintenance keeps.
    with duck.attached(dsn, tmp_path) as lake:
        lake.execute("call ducklake_delete_orphaned_files('lake', cleanup_all => true)")
        found = lake.execute("select queue, body, day from lake.lost_archive").fetchall()
    assert words([body for _, body, _ in found]) == lost_of(tmp_path) == {"two": 4}
    assert {queue for queue, _, _ in found} == {"orders"}
    assert orphans(dsn, "orders", tmp_path).names == []


def test_lake_whose_exports_the_database_has_forgotten_is_refused(
    client: Client, database: str, tmp_path: Path
) -> None:
    archived(database, "one", 3)
    run(database, tmp_path, "ducklake")
    assert client.admin.receivers.forget_export("orders", str(tmp_path))
    with pytest.raises(PositionUnknownError, match="and the database has noted 0"):
        run(database, tmp_path, "ducklake")
    restored(database, "orders", lake=tmp_path)
    archived(database, "two", 1)
    assert run(database, tmp_path, "ducklake").exported == 1
    assert counted(database, tmp_path) == {"one": 3, "two": 1}


def test_lake_of_a_queue_that_was_made_anew_is_refused(client: Client, database: str, tmp_path: Path) -> None:
    archived(database, "one", 3)
    run(database, tmp_path, "ducklake")
    client.queues.drop("orders")
    client.queues.create("orders")
    archived(database, "two", 3)
    with pytest.raises(PipelineError, match="holds another queue of the name orders"):
        run(database, tmp_path, "ducklake")
    with pytest.raises(PositionUnknownError, match="which this database has not noted"):
        moved(database, "orders", lake=tmp_path)


def test_copy_of_a_database_leaves_the_lake_to_the_first(
    dsn: str, spanmq_server: str, tmp_path: Path
) -> None:
    archived(dsn, "one", 3)
    run(dsn, tmp_path, "ducklake")
    name = f"spanmq_test_{uuid.uuid4().hex[:16]}"
    other = with_database(spanmq_server, name)
    with psycopg.connect(spanmq_server, autocommit=True) as connection:
        of = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
        connection.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s", [of]
        )
        connection.execute(f"create database {name} template {of}")
        try:
            archived(other, "theirs", 2)
            with pytest.raises(PipelineError, match="holds another queue of the name orders"):
                run(other, tmp_path, "ducklake")
            # It is the first's no longer: that is what a person says by this.
            assert moved(other, "orders", lake=tmp_path).tables == ["archive"]
            assert run(other, tmp_path, "ducklake").exported == 2
            assert counted(other, tmp_path) == {"one": 3, "theirs": 2}
        finally:
            connection.execute(f"drop database {name} with (force)")
    archived(dsn, "two", 2)
    assert run(dsn, tmp_path, "ducklake").exported == 2
    assert rows_of(tmp_path, dsn) == {"one": 3, "two": 2}


def test_two_queues_share_a_lake(client: Client, database: str, tmp_path: Path) -> None:
    client.queues.create("bills")
    client.archive("bills", client.send_batch("bills", ["bill 1", "bill 2"]))
    archived(database, "one", 3)
    for queue in ("orders", "bills"):
        export(SESSION, database, queue, tmp_path, format="ducklake")
    query = "select queue, count(*) from lake.archive group by queue order by queue"
    assert duck.rows(database, tmp_path, query) == [("bills", 2), ("orders", 3)]
    assert rest_of(database, tmp_path) == {"one": 3}


def test_first_exports_of_two_queues_create_one_catalogue(
    client: Client, database: str, tmp_path: Path
) -> None:
    client.queues.create("bills")
    client.archive("bills", client.send_batch("bills", ["bill 1", "bill 2"]))
    archived(database, "one", 3)
    with ThreadPoolExecutor(2) as pool, psycopg.connect(database) as connection:
        # One gets no further than to create the schema, and the other waits for it.
        connection.execute("lock table pg_catalog.pg_namespace in share mode")
        done = [
            pool.submit(export, SESSION, database, queue, tmp_path, format="ducklake")
            for queue in ("orders", "bills")
        ]
        query = "select count(*) from pg_locks where not granted and database = (%s)"
        here = "select oid from pg_database where datname = current_database()"
        patience.wait_until(lambda: connection.execute(query % here).fetchone() == (2,))
        connection.commit()
        assert [each.result().exported for each in done] == [3, 2]
    query = "select queue, count(*) from lake.archive group by queue order by queue"
    assert duck.rows(database, tmp_path, query) == [("bills", 2), ("orders", 3)]


def test_catalogue_that_was_created_since_is_seen_in_the_same_transaction(dsn: str, tmp_path: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as mine, mine.transaction():
        catalogue = Catalogue(client_of(mine), lake_at(tmp_path / "lake"), TABLES["archive"])
        assert not catalogue.exists()
        do(dsn, "create schema ducklake_lake create table ducklake_metadata ()")
        with pytest.raises(PipelineError, match="did not create"):
            catalogue.exists()


def test_dry_run_changes_nothing(dsn: str, tmp_path: Path) -> None:
    archived(dsn, "one", 3)
    report = export(SESSION, dsn, "orders", tmp_path / "lake", format="ducklake", dry_run=True)
    assert (report.exported, (tmp_path / "lake").exists()) == (3, False)
    assert ask(dsn, "select to_regnamespace('ducklake_lake')") is None


def test_programs_of_the_page_run(
    client: Client, database: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    bodies = [{"customer": f"c{n % 3}", "n": n} for n in range(9)]
    client.archive("orders", client.send_batch("orders", bodies))
    lake = tmp_path / "lake"
    run(database, lake, "ducklake")
    scope = {"dsn": database, "connected": duck.connected}
    run_programs("guides/lakes", scope, lambda text: text.replace("duckdb.connect()", "connected()"))
    scope["lake"].close()
    assert "orders" in capfd.readouterr().out
    query = "select count(*), count(*) filter (where body like '%c1%') from lake.archive"
    assert duck.rows(database, lake, query) == [(6, 0)]
    assert not [path for path in lake.rglob("*.parquet") if b'"c1"' in path.read_bytes()]
    assert run(database, lake, "ducklake").exported == 0
