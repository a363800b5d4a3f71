"""The jobs: what they write is audited by readers that are not Spark, and they may be killed anywhere."""

from __future__ import annotations

import json
import signal
import threading
import time
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from spark.tests.process.lakes import archive, delta_bodies, leftovers, parquet_bodies
from tests.cli.program import ask
from tests.patience import wait_until
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, InvalidBodyError, PipelineError
from spanmq_spark.jobs.backfill import backfill
from spanmq_spark.jobs.export import ExportReport, export, follow, missing
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.manifests.store import read_manifests
from spanmq_spark.jobs.ranges import union, within
from spanmq_spark.rows import Range
from spanmq_spark.session import told_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_export_is_incremental_and_each_message_is_there_once(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    client.send_batch("orders", range(1000))
    archive(client, 300)
    assert export(spark, database, "orders", lake, dry_run=True).exported == 300
    assert not lake.exists()
    first = export(spark, database, "orders", lake)
    assert (first.exported, first.exported_before) == (300, 0)
    # Out of order: the last first, and a gap of what is deleted.
    with psycopg.connect(database) as late:
        Client(connection=late).archive("orders", list(range(301, 401)))
        # Of other spans: the first transaction holds its own.
        client.archive("orders", list(range(513, 1001)))
        assert export(spark, database, "orders", lake).exported == 488
        late.commit()
    client.delete("orders", list(range(401, 451)))
    assert export(spark, database, "orders", lake).exported == 100
    assert export(spark, database, "orders", lake).exported == 0
    assert parquet_bodies(lake) == [*range(400), *range(512, 1000)]
    assert leftovers(lake) == set()
    assert list(lake.glob("archive/queue=orders/day=*"))


def test_next_export_finds_what_was_archived_late_and_a_day_later_what_has_any_time(
    client: Client, spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.send_batch("orders", range(1000))
    with psycopg.connect(database) as late:
        late.execute("select pgmq.archive('orders', array[3, 5])")
        # Of other spans: the transaction holds its own.
        client.archive("orders", [601, 609])
        assert export(spark, database, "orders", tmp_path).exported == 2
        # The transaction is still open, and older than the one before.
        client.archive("orders", [604])
        assert export(spark, database, "orders", tmp_path, dry_run=True).exported == 1
        assert export(spark, database, "orders", tmp_path).exported == 1
    assert export(spark, database, "orders", tmp_path).exported == 2
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute(
            "insert into pgmq.a_orders (msg_id, read_ct, enqueued_at, archived_at, vt, message)"
            " values (9999, 1, '2020-01-01', '2020-01-02', '2020-01-02', '9998')"
        )
        assert export(spark, database, "orders", tmp_path).exported == 0
        monkeypatch.setattr("spanmq_spark.jobs.export.COMPARE_SECONDS", 0.0)
        assert export(spark, database, "orders", tmp_path).exported == 1
        assert parquet_bodies(tmp_path) == [2, 4, 600, 603, 608, 9998]
        found = admin.execute("select ids::text from spanmq_core.archive_export_ids").fetchall()
        assert found == [("{[3,4),[5,6),[601,602),[604,605),[609,610),[9999,10000)}",)]


def test_export_that_follows_goes_on_until_it_is_told_to_stop(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(30))
    rounds: list[float] = []

    def wait(seconds: float) -> bool:
        rounds.append(seconds)
        # The second export has nothing to do.
        if len(rounds) == 2:
            archive(client, 10)
        return len(rounds) == 3

    archive(client, 20)
    done: list[ExportReport] = []
    go_on = partial(follow, spark, database, "orders", tmp_path, format="delta", wait=wait)
    go_on(every=7, progress=done.append)
    assert [each.exported for each in done] == [20, 10]
    assert [(each.job, each.done) for each in client.admin.pipeline_runs.list()] == [("export", 30)]
    assert rounds == [7, 7, 7]
    assert delta_bodies(tmp_path) == list(range(30))
    with pytest.raises(InvalidArgumentError, match="more than 0 seconds"):
        go_on(every=0)


def test_command_that_follows_ends_in_good_order(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    archive(client, 10)

    def stop_after_the_first() -> None:
        wait_until(lambda: read_manifests(lake_at(tmp_path), "orders"))
        # To the thread that waits: another's signal would not end its wait.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    stopper = threading.Thread(target=stop_after_the_first)
    stopper.start()
    arguments = ["export", "orders", "--to", str(tmp_path), "--follow", "--every", "600", "--json"]
    done = CliRunner().invoke(app, ["pipeline", *arguments, "--dsn", database])
    stopper.join()
    assert (done.exit_code, done.stderr) == (0, "")
    [told] = [json.loads(line) for line in done.stdout.splitlines()]
    assert told["exported"] == 10
    done = CliRunner().invoke(app, ["pipeline", *arguments, "--dry-run", "--dsn", database])
    assert (done.exit_code, "can't be used together" in done.stderr) == (2, True)


def test_retention_waits_for_the_lake(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    archive(client, 5)
    export(spark, database, "orders", tmp_path)
    archive(client, 5)
    client.queues.set_policy("orders", archive_retention="1 microsecond")
    while client.admin.maintain():
        pass
    assert [message.body for message in client.inspect.archive("orders")] == [5, 6, 7, 8, 9]
    assert client.admin.receivers.forget_export("orders", str(tmp_path.resolve()))
    while client.admin.maintain():
        pass
    assert client.inspect.archive("orders") == []


def test_ranges_are_joined_and_what_is_missing_is_found() -> None:
    assert union([(1, 3)], [(7, 9), (4, 5)]) == [(1, 5), (7, 9)]
    assert within([(1, 5), (7, 9)], 4, 8) == [(4, 5), (7, 8)]
    extent = Range("q", "t", 1, 0)
    assert missing(extent, [(1, 9)], [(1, 9)]) == []
    [gap] = missing(extent, [(1, 9)], [(1, 5)])
    assert gap.where == "not '{[1,5]}'::int8multirange @> t.msg_id"
    [gap] = missing(replace(extent, key="t.id"), [(1, 9)], [(1, 5)])
    assert gap.where == "not '{[1,5]}'::int8multirange @> t.id"


def test_backfill_puts_the_rows_of_a_group_in_order(
    client: Client, spark: SparkSession, database: str
) -> None:
    frame = spark.range(0, 300, numPartitions=4).selectExpr("id", "if(id % 4 = 0, null, id % 4) as customer")
    load = partial(backfill, spark, database, "orders", frame, job_id="load", body="cast(id as string)")
    with pytest.raises(InvalidArgumentError, match="order within a group only"):
        load(order="id")
    assert load(group="customer", order="-id", headers="""if(id = 7, '{"trace": 1}', null)""").sent == 300
    received = sorted(client.receive("orders", 1000), key=lambda message: message.message_id)
    for group in "123":
        places = [message.body for message in received if message.group == group]
        assert places == sorted(places, reverse=True)
        assert len(places) == 75
    assert [message.headers for message in received if message.body == 7] == [
        {"trace": 1, "x-pgmq-group": "3"}
    ]


def test_backfill_that_fails_says_why_in_one_message(
    client: Client, spark: SparkSession, database: str
) -> None:
    frame = spark.range(2).selectExpr("if(id = 1, '{broken', '1') as n")
    with pytest.raises(InvalidBodyError, match="into queue orders, segment log_") as caught:
        backfill(spark, database, "orders", frame, job_id="load", body="n")
    assert "Traceback" not in str(caught.value)
    with pytest.raises(PipelineError, match="nowhere"):
        backfill(spark, database, "orders", "/nowhere", job_id="load")
    assert client.queues.metrics("orders").length == 0


def test_backfill_keeps_to_its_rate(client: Client, spark: SparkSession, database: str) -> None:
    frame = spark.range(0, 300, numPartitions=1).selectExpr("cast(id as string) as n")
    before = ask(database, "select clock_timestamp()")
    done = backfill(spark, database, "orders", frame, job_id="slow", body="n", rate=100)
    # Four blocks of 75 rows: the last is not reserved before the time of the other three is over.
    last = ask(database, "select max(enqueued_at) from pgmq.q_orders")
    assert last - before >= timedelta(seconds=2.25)
    assert (done.sent, client.queues.metrics("orders").length) == (300, 300)
    with pytest.raises(InvalidArgumentError, match="1 row a second or more"):
        backfill(spark, database, "orders", frame, job_id="none", rate=0)


def test_who_waits_is_told_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    go = tmp_path / "go"

    def tell(done: int, n: int) -> None:
        told.append((done, n))
        go.touch()

    def wait(batches: Any) -> Any:
        for batch in batches:
            while not go.exists():
                time.sleep(0.01)
            yield batch

    frame = spark.range(0, 30, numPartitions=3).mapInArrow(wait, "id long")
    with told_of_tasks(spark, tell):
        assert len(frame.collect()) == 30
    assert told[0][1] == 3


def test_wrong_credentials_are_one_message(spark: SparkSession, database: str, tmp_path: Path) -> None:
    dsn = database.replace("postgres@", "nobody_known@")
    for arguments in (
        ["export", "orders", "--to", str(tmp_path / "lake")],
        ["backfill", "orders", str(tmp_path), "--job-id", "one"],
        ["dead-letters", "orders"],
    ):
        done = CliRunner().invoke(app, ["pipeline", *arguments, "--dsn", dsn])
        assert (done.exit_code, done.stdout) == (1, "")
        assert 'role "nobody_known" does not exist' in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "lake").exists()
