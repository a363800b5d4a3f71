"""Sealed bodies through Spark: opened and sealed with keys from a file, and never taken for other ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.conftest import Batch
from tests.spark.test_archive_reader import Drive, drive
from tests.spark.test_batch import failure
from tests.spark.test_stream import run
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client

pytest.importorskip("cryptography")

from spanmq.encryption import SEALED_KEY, Encryption, new_line
from spanmq.spark.cause import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["drive"]


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.write_text(new_line("first") + "\n")
    return str(path)


@pytest.fixture
def sealing(client: Client, database: str, key_file: str) -> Client:
    """A client that seals; the queue has three of its messages, and one that is not sealed."""
    with_keys = Client(database, maintain_interval=None, encryption=Encryption.from_file(key_file))
    with_keys.send_batch("orders", [{"order": i} for i in range(3)])
    client.send("orders", {"order": 3})
    return with_keys


def test_sealed_bodies_are_opened_with_the_keys_of_a_file(
    sealing: Client, batch: Batch, key_file: str
) -> None:
    frame = batch(encryptionKeyFile=key_file, bodySchema="order int")
    assert sorted(row.body.order for row in frame.collect()) == [0, 1, 2, 3]
    stored = [json.loads(row.body) for row in batch().orderBy("message_id").collect()]
    assert [SEALED_KEY in body for body in stored] == [True, True, True, False]


def test_sealed_bodies_that_can_not_be_opened_are_said(
    sealing: Client, batch: Batch, tmp_path: Path, key_file: str
) -> None:
    # Not nulls, which mode=permissive makes of what does not fit.
    text = failure(batch(bodySchema="order int").collect)
    assert "bodies of queue orders are sealed, and the option bodySchema can't be applied" in text
    assert "encryptionKeyFile" in text
    other = tmp_path / "other"
    other.write_text(new_line("second") + "\n")
    text = failure(batch(encryptionKeyFile=str(other)).collect)
    assert "the body was sealed under the key 'first', which is not here" in text
    text = failure(batch(encryptionKeyFile=str(tmp_path / "none")).collect)
    assert "can't be read" in text


def test_stream_opens_sealed_bodies_and_goes_on_where_it_had_no_keys(
    sealing: Client, spark: SparkSession, stream: Batch, key_file: str, tmp_path: Path
) -> None:
    text = failure(lambda: run(stream(bodySchema="order int"), tmp_path))
    assert str(cause_of(text)).startswith("bodies of queue orders are sealed, and the option bodySchema")
    # The queue by another spelling than what bodies were sealed for.
    run(stream("Orders", bodySchema="order int", encryptionKeyFile=key_file), tmp_path)
    rows = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted((row.queue, row.body.order) for row in rows) == [("orders", i) for i in range(4)]
    assert sealing.metrics("orders").length == 0


def test_stream_sends_on_sealed_what_a_subscription_gets(
    sealing: Client, stream: Batch, database: str, key_file: str, tmp_path: Path
) -> None:
    sealing.create_queue("copies")
    sealing.create_subscription("lake", "orders", waiting=True)
    keys = {"encryptionKeyFile": key_file}

    def forward(**more: str) -> None:
        frame = stream("lake", columns="body", **keys, **more)
        writer = frame.writeStream.format("spanmq").options(dsn=database, queue="copies", **keys)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    text = failure(forward)
    assert "the body was sealed for 'orders'" in text
    assert sealing.metrics("copies").length == 0
    forward(encryptionTrusted="orders")
    with Client(database, maintain_interval=None) as without_keys:
        assert [SEALED_KEY in each.body for each in without_keys.peek("copies", 10)] == 4 * [True]
    assert sorted(each.body["order"] for each in sealing.receive("copies", 10)) == [0, 1, 2, 3]
    assert sealing.metrics("lake").length == 0


def test_stream_over_an_archive_opens_sealed_bodies(sealing: Client, drive: Drive, key_file: str) -> None:
    sealing.archive("orders", [each.message_id for each in sealing.receive("orders", 10)])
    driver = drive(encryptionKeyFile=key_file)
    # The first step is the place where it starts.
    driver.step()
    found: list[Any] = driver.step()
    assert found == [{"order": i} for i in range(4)]


def test_frame_is_sent_sealed(
    client: Client, spark: SparkSession, database: str, key_file: str, tmp_path: Path
) -> None:
    def write(frame: object) -> None:
        writer = frame.write.format("spanmq").option("dsn", database).option("queue", "orders")  # type: ignore[attr-defined]
        writer.option("encryptionKeyFile", key_file).mode("append").save()

    assert "no json" in failure(lambda: write(spark.range(1).selectExpr("'{broken' as body")))
    source = str(tmp_path / "table")
    spark.range(5).write.parquet(source)
    arguments = ["backfill", "orders", source, "--job-id", "one", "--body", "cast(id as string)"]
    done = CliRunner().invoke(
        app,
        ["pipeline", *arguments, "--dsn", database],
        env={"SPANMQ_ENCRYPTION_KEY_FILE": key_file},
    )
    assert (done.exit_code, client.metrics("orders").length) == (0, 5)
    assert all(SEALED_KEY in each.body for each in client.peek("orders", 10))
    with Client(database, maintain_interval=None, encryption=Encryption.from_file(key_file)) as opening:
        assert sorted(each.body for each in opening.receive("orders", 10)) == list(range(5))


def test_keys_that_executors_can_not_read_send_nothing_unsealed(client: Client, database: str) -> None:
    done = CliRunner().invoke(
        app,
        ["pipeline", "backfill", "orders", "none", "--job-id", "one", "--dsn", database],
        env={"SPANMQ_ENCRYPTION_KEYS": "first " + "A" * 43 + "="},
    )
    assert done.exit_code == 1
    assert "name it with --key-file" in done.output
    assert client.metrics("orders").length == 0
