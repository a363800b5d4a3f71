"""Two jobs from end to end; what each promises in every case is in the other files here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from spanmq.client import Client
from spanmq_spark.jobs.backfill import backfill
from spanmq_spark.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        assert connection.execute("select max(position_id) from spanmq_core.position").fetchone() == (2,)


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
