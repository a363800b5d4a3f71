"""Jobs from end to end; what each promises in every case is in tests/process/spark."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.codec.encryption import SEALED_KEY, Encryption, new_line
from spanmq.spark.jobs.backfill import backfill
from spanmq.spark.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archive_goes_by_commands_into_a_lake_a_report_and_another_queue(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.archive("orders", client.send_batch("orders", range(20)))
    lake, page = str(tmp_path / "lake"), tmp_path / "page.html"

    keys = tmp_path / "keys"
    keys.write_text(new_line("first") + "\n")

    def spanmq(*arguments: str) -> Any:
        # Bodies are sealed where that is asked for.
        return CliRunner().invoke(
            app, ["pipeline", *arguments], env={"SPANMQ_ENCRYPTION_KEY_FILE": str(keys)}
        )

    done = spanmq("export", "orders", "--to", lake, "--dsn", database, "--json")
    assert json.loads(done.stdout)["exported"] == 20
    done = spanmq("report", "--lake", lake, "--page", str(page), "--dry-run")
    assert (done.stdout, page.exists()) == ("would report 20 messages and 0 failures\n", False)
    done = spanmq("report", "--lake", lake, "--page", str(page), "--json")
    assert json.loads(done.stdout)["queues"][0]["messages"] == 20
    assert page.exists()
    [file, *_] = sorted(str(path) for path in Path(lake).rglob("*.parquet"))
    done = spanmq("backfill", "orders", file, "--job-id", "again", "--body", "body", "--dsn", database)
    assert done.exit_code == 0
    assert [SEALED_KEY in each.body for each in client.peek("orders", 100)] == 20 * [True]
    encryption = Encryption.from_file(str(keys))
    with Client(database, encryption=encryption) as opening:
        assert sorted(each.body for each in opening.receive("orders", 100)) == list(range(20))
    done = spanmq("export", "oders", "--to", lake, "--dsn", database)
    assert (done.exit_code, "there is no queue 'oders'" in done.stderr) == (1, True)
    done = spanmq("report", "orders", "--dsn", "host=127.0.0.1 port=1 connect_timeout=2 dbname=x")
    assert done.exit_code == 1
    assert done.stderr.startswith("spanmq: ")
    assert "Traceback" not in done.stderr


def test_export_of_rows_between_gaps_compares_them_in_one_task(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "insert into pgmq.a_orders (msg_id, read_ct, vt, message)"
            " select 2 * id, 1, now(), '1' from generate_series(1, 3000) id"
        )
        assert export(spark, database, "orders", tmp_path / "lake").exported == 3000
        # Each task notes a position, and so does the driver.
        assert connection.execute("select count(*) from spanmq_core.position").fetchone() == (2,)


def test_backfill_sends_once_from_any_thread_and_is_noted(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    source = str(tmp_path / "table")
    table = spark.range(0, 100, numPartitions=2).selectExpr("id as `order`", "id % 3 as customer")
    table.write.parquet(source)
    load = partial(backfill, spark, database, "orders", source, job_id="load", group="customer")
    assert load(dry_run=True).found == 100
    assert client.queues.metrics("orders").length == 0
    with ThreadPoolExecutor(1) as elsewhere:
        assert elsewhere.submit(load).result().sent == 100
    assert load().sent == 0
    received = client.receive("orders", 1000)
    assert sorted(message.body["order"] for message in received) == list(range(100))
    assert {message.group for message in received} == {"0", "1", "2"}
    runs = client.admin.pipeline_runs.list()
    assert {(run.job, run.target, run.state) for run in runs} == {("backfill", source, "succeeded")}
    assert sorted(run.done or 0 for run in runs) == [0, 100]
