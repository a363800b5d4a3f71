"""Streams over an archive, and of a subscription, on Spark. See test_archive_reader, too."""

from __future__ import annotations

import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.conftest import Batch
from tests.spark.test_stream import forget, lake, last_commit, once, run, sizes

from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archived(client: Client, bodies: range) -> None:
    """Send and archive messages."""
    client.archive("orders", client.send_batch("orders", bodies))


def test_what_is_archived_arrives_once(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    archived(client, range(700))
    frame = partial(stream, table="archive")
    progress = run(frame(maxOffsetsPerTrigger=300, minPartitions=2), tmp_path)
    assert sizes(progress) == [300, 300, 100]
    run(frame(), tmp_path)
    archived(client, range(700, 1000))
    run(frame(), tmp_path)
    assert lake(spark, tmp_path) == once(1000)
    rows = spark.read.parquet(str(tmp_path / "lake"))
    assert {"queue", "message_id", "attempt", "archived_at", "body"} <= set(rows.columns)
    assert client.metrics("orders").length == 0


def test_killed_query_replays_the_same_rows(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    archived(client, range(100))
    frame = partial(stream, table="archive")
    run(frame(), tmp_path)
    with_late = client.send_batch("orders", range(100, 200))
    client.archive("orders", with_late[50:])
    # Killed before Spark's commit, and before the sink had all: as if the last batch were under way.
    number = last_commit(tmp_path).name
    forget(last_commit(tmp_path))
    forget(tmp_path / "lake" / "_spark_metadata" / number)
    client.archive("orders", with_late[:50])
    progress = run(frame(minPartitions=4), tmp_path)
    assert [each["numInputRows"] for each in progress if each["batchId"] == int(number)] == [100]
    assert lake(spark, tmp_path) == once(200)


def test_subscription_of_a_stream_beside_workers(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.create_subscription("lake", "orders")
    n = 2000
    handled: Counter[int] = Counter()
    is_sent = threading.Event()

    def work() -> None:
        while True:
            was_sent = is_sent.is_set()
            messages = client.receive("orders", 50, lease=3600)
            if messages:
                client.ack(messages)
                handled.update(message.body for message in messages)
            elif was_sent:
                return

    def send() -> None:
        for first in range(0, n, 100):
            client.send_batch("orders", range(first, first + 100))
        is_sent.set()

    threads = [threading.Thread(target=work), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    run(stream("lake", maxOffsetsPerTrigger=300), tmp_path)
    for thread in threads:
        thread.join()
    run(stream("lake"), tmp_path)
    assert handled == once(n)
    assert lake(spark, tmp_path) == once(n)
    assert client.metrics("lake").length == 0
