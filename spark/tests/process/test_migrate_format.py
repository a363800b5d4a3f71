"""Where Spark can write a queue can go: drained, or mirrored by a subscription while workers are at it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.jobs.migrate import SparkFormat, migrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_mirror_gets_every_message_while_workers_take_theirs(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.subscriptions.create("mirror", "orders")
    client.send_batch("orders", range(200), group=[f"g{i % 3}" for i in range(200)])
    client.ack(client.receive("orders", 150))
    lake = tmp_path / "lake"
    columns = ("message_id", "`group` as key", "body as value")
    target = SparkFormat(name="parquet", settings={"path": str(lake)}, columns=columns)
    done = migrate(spark, database, "mirror", target, tmp_path / "checkpoint")
    assert (done.sent, done.left, done.to) == (200, 0, f"format parquet {lake}")
    files = [pyarrow.parquet.ParquetFile(path).read().to_pylist() for path in lake.glob("*.parquet")]
    found = [row for rows in files for row in rows]
    assert sorted(json.loads(row["value"]) for row in found) == list(range(200))
    # As they were sent, in each file; with their groups.
    for rows in files:
        assert rows == sorted(rows, key=lambda row: row["message_id"])
    assert all(row["key"] == f"g{json.loads(row['value']) % 3}" for row in found)
    assert client.queues.metrics("orders").length == 50


def test_what_was_sent_is_counted_over_more_batches_than_spark_remembers(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(60))
    told: list[int] = []
    name = "spark.sql.streaming.numRecentProgressUpdates"
    spark.conf.set(name, "1")
    try:
        target = SparkFormat(name="noop")
        done = migrate(
            spark, database, "orders", target, tmp_path / "checkpoint", batch=5, progress=told.append
        )
    finally:
        spark.conf.unset(name)
    assert (done.sent, done.left) == (60, 0)
    assert told == sorted(told)
    assert told[-1] == 60


def test_format_that_there_is_not_moves_nothing(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send("orders", 1)
    with pytest.raises(PipelineError, match="nothing_like_it"):
        migrate(spark, database, "orders", SparkFormat(name="nothing_like_it"), tmp_path / "checkpoint")
    with pytest.raises(InvalidArgumentError, match="needs a name"):
        migrate(spark, database, "orders", SparkFormat(name=""), tmp_path / "checkpoint")
    assert client.queues.metrics("orders").visible_length == 1


def test_command_names_a_format(client: Client, spark: SparkSession, database: str, tmp_path: Path) -> None:
    client.send_batch("orders", range(3))
    fixed = ["--checkpoint", str(tmp_path / "checkpoint"), "--dsn", database, "--json"]
    to = ["--to", "json", "--setting", f"path={tmp_path / 'out'}", "--select", "body as value"]
    done = CliRunner().invoke(app, ["pipeline", "migrate", "orders", *to, *fixed])
    assert (done.exit_code, json.loads(done.stdout)["sent"]) == (0, 3)
    texts = [path.read_text() for path in (tmp_path / "out").glob("*.json")]
    assert sorted(line for text in texts for line in text.splitlines()) == [
        f'{{"value":"{i}"}}' for i in range(3)
    ]
