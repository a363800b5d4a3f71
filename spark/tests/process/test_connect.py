"""Spark Connect: the program is a client alone, and the source runs at the server's."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spanmq.client import Client


@pytest.fixture
def remote(connect_url: str) -> Iterator[Any]:
    """Return a client of the server that the tests' own session runs."""
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    opened = RemoteSession.builder.remote(connect_url).create()
    yield opened
    opened.client.close()


def test_batches_are_read_and_written_through_connect(client: Client, remote: Any, database: str) -> None:
    client.queues.create("copies")
    client.send_batch("orders", range(100), group="a")
    frame = remote.read.format("spanmq").option("dsn", database).option("queue", "orders").load()
    assert frame.filter("message_id <= 40").count() == 40
    writer = frame.select("body", "group").write.format("spanmq").option("dsn", database)
    writer.option("queue", "copies").mode("append").save()
    received = client.receive("copies", 1000)
    assert Counter(message.body for message in received) == Counter(range(100))
    assert {message.group for message in received} == {"a"}


def test_stream_runs_through_connect(client: Client, remote: Any, database: str, tmp_path: Path) -> None:
    client.send_batch("orders", range(100))
    frame = remote.readStream.format("spanmq").option("dsn", database).option("queue", "orders").load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "lake"))
    query.awaitTermination()
    found = remote.read.parquet(str(tmp_path / "lake")).select("body").collect()
    assert Counter(int(row.body) for row in found) == Counter(range(100))
    assert client.queues.metrics("orders").length == 0
