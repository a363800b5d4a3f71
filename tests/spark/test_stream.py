"""Streams: every message once, whatever happens between the queue, the checkpoint and the sink.

What a killed driver leaves behind is made here from what it had written: a claim without an offset, an offset
without a commit, a commit of the sink without Spark's own.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.spark.conftest import Batch

from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# For what a stream does in the end, on however busy a machine.
SECONDS = 500


def run(frame: DataFrame, folder: Path, *, checkpoint: str = "checkpoint", format: str = "parquet") -> Any:  # noqa: A002
    """Run a stream until it has everything that was there at its start; returns its progress."""
    writer = frame.writeStream.format(format).option("checkpointLocation", str(folder / checkpoint))
    query = writer.trigger(availableNow=True).start(str(folder / "lake"))
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query.recentProgress


def start(frame: DataFrame, folder: Path, checkpoint: str = "checkpoint") -> Any:
    """Start a stream that runs until it is stopped."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / checkpoint))
    return writer.start(str(folder / "lake"))


def wait_until(is_so: Callable[[], bool], *queries: Any) -> None:
    """Wait for something that these streams do."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        for query in queries:
            assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sizes(progress: Any) -> list[int]:
    """Give how many rows each batch had. Spark tells also of none, where none came for ten seconds."""
    return [each["numInputRows"] for each in progress if each["numInputRows"]]


def lake(spark: SparkSession, folder: Path) -> Counter[Any]:
    """Count the bodies in the sink."""
    return Counter(json.loads(row.body) for row in spark.read.parquet(str(folder / "lake")).collect())


def last_commit(folder: Path, checkpoint: str = "checkpoint") -> Path:
    return max(
        (each for each in (folder / checkpoint / "commits").iterdir() if each.name.isdigit()),
        key=lambda each: int(each.name),
    )


def forget(path: Path) -> None:
    """Remove a file of a checkpoint, with its checksum."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def failure(act: Any) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps what readers raise
        act()
    return str(caught.value)


def once(n: int) -> Counter[int]:
    return Counter(range(n))


def test_every_message_arrives_once_and_is_settled(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(700), group="a")
    progress = run(stream(maxOffsetsPerTrigger=300, minPartitions=2), tmp_path)
    assert sizes(progress) == [300, 300, 100]
    # The identity lay in the checkpoint before the first lease.
    first = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[-1])
    [receiver] = client.list_receivers("orders")
    assert (first["receiver"], first["lease"]) == (str(receiver.receiver_id), 0)
    client.send_batch("orders", range(700, 1000))
    run(stream(), tmp_path)
    assert lake(spark, tmp_path) == once(1000)
    assert client.metrics("orders").length == 0
    assert [each.held for each in client.list_receivers("orders")] == [0]


def test_claim_without_an_offset_is_delivered_by_the_next_driver(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.send_batch("orders", range(10))
    run(stream(), tmp_path)
    client.send_batch("orders", range(10, 20))
    with psycopg.connect(database, autocommit=True) as dead:
        receiver = client.list_receivers("orders")[0]
        row = dead.execute(
            "select incarnation from pgmq.receiver_open('orders', %s)", [receiver.receiver_id]
        ).fetchone()
        assert row is not None
        claim = "select pgmq.receiver_claim('orders', %s, %s, %s, 5)"
        assert dead.execute(claim, [receiver.receiver_id, row[0], 1]).fetchone() == (2,)
    assert client.metrics("orders").visible_length == 5
    run(stream(), tmp_path)
    assert lake(spark, tmp_path) == once(20)


@pytest.mark.parametrize("sink_has_it", [False, True])
def test_replayed_batch_is_the_same_batch(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, sink_has_it: bool
) -> None:
    client.send_batch("orders", range(10))
    run(stream(), tmp_path)
    client.send_batch("orders", range(10, 15))
    # Killed before Spark's commit; before or after the sink's.
    number = last_commit(tmp_path).name
    forget(last_commit(tmp_path))
    if not sink_has_it:
        forget(tmp_path / "lake" / "_spark_metadata" / number)
    run(stream(minPartitions=3), tmp_path)
    assert lake(spark, tmp_path) == once(15)
    assert client.metrics("orders").length == 0


def test_failed_task_runs_again_on_the_same_rows(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    from pyspark import TaskContext

    def flaky(batches: Any) -> Any:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            raise RuntimeError("this attempt fails")

    client.send_batch("orders", range(50))
    frame = stream()
    run(frame.mapInArrow(flaky, frame.schema), tmp_path)
    assert lake(spark, tmp_path) == once(50)


def test_streams_and_workers_share_a_queue(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(100))
    mine = client.receive("orders", 40, lease=3600)
    run(stream(), tmp_path, checkpoint="one")
    client.send_batch("orders", range(100, 110))
    run(stream(), tmp_path / "two")
    client.ack(mine)
    assert lake(spark, tmp_path) + lake(spark, tmp_path / "two") == once(110) - once(40)
    assert client.metrics("orders").length == 0


def test_label_belongs_to_one_checkpoint_until_it_is_adopted_or_released(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    run(stream(receiver="lake"), tmp_path)
    text = failure(lambda: run(stream(receiver="lake"), tmp_path, checkpoint="other"))
    assert "belongs to another checkpoint" in text
    assert "spanmq adopt-receiver orders lake" in text
    client.adopt_receiver("orders", "lake")
    client.send_batch("orders", range(10, 12))
    run(stream(receiver="lake"), tmp_path, checkpoint="third")
    assert "no longer the receiver" not in str(client.list_receivers("orders"))
    assert client.metrics("orders").length == 0


def test_release_by_hand_stops_a_running_stream_with_an_error(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    query = start(stream(receiver="lake"), tmp_path)
    wait_until(lambda: any(each.settled == 1 for each in client.list_receivers("orders")), query)
    client.release_receiver("orders", "lake")
    text = failure(lambda: query.awaitTermination(SECONDS))
    assert "was released by hand" in text


def test_checkpoint_of_another_queue_is_refused(client: Client, stream: Batch, tmp_path: Path) -> None:
    client.create_queue("others")
    client.send("orders", 1)
    run(stream(), tmp_path)
    text = failure(lambda: run(stream("others"), tmp_path))
    assert "the checkpoint is of queue orders, the option queue is others" in text
    # As after a restore into another server, which has the receiver's row, too.
    offset = max((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    version, settings, line = offset.read_text().splitlines()
    system = json.loads(line)["system"]
    forget(offset)
    offset.write_text("\n".join([version, settings, line.replace(system, "4711")]))
    client.send("orders", 2)
    text = failure(lambda: run(stream(), tmp_path))
    assert "the checkpoint of queue orders is of another server: 4711" in text
    assert client.metrics("orders").visible_length == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "oders"}, "there is no queue 'oders'\nhint: Did you mean orders?"),
        (
            {"maxOffsetPerTrigger": "1"},
            "no option 'maxoffsetpertrigger'\nhint: Did you mean maxOffsetsPerTrigger?",
        ),
        ({"table": "failures"}, "a stream reads the table queue or archive, not failures"),
        ({"columns": "message_id, leased_until"}, "a stream has no column leased_until"),
        ({"queue": "ord*"}, "must name one queue, got 'ord*'"),
        ({"startingOffsets": "latest"}, "the option startingOffsets is for streams over an archive"),
        ({"table": "archive", "receiver": "lake"}, "the option receiver is for streams over a queue"),
    ],
)
def test_bad_option_of_a_stream_is_named(
    client: Client, stream: Batch, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    said = failure(lambda: run(stream(**options), tmp_path))
    assert text in said, said
    assert client.list_receivers() == []


@pytest.mark.parametrize(
    ("options", "mode", "text"),
    [
        ({"queue": "oders"}, "append", "there is no queue 'oders'\nhint: Did you mean orders?"),
        (
            {"queue": "orders", "writterId": "a"},
            "append",
            "no option 'writterid'\nhint: Did you mean writerId?",
        ),
        ({"queue": "orders"}, "complete", "a queue can't be overwritten"),
    ],
)
def test_bad_option_of_a_stream_that_sends_is_named(
    client: Client,
    spark: SparkSession,
    tmp_path: Path,
    database: str,
    options: dict[str, str],
    mode: str,
    text: str,
) -> None:
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    frame = (
        ticks.groupBy().count().selectExpr("cast(count as string) as body")
        if mode == "complete"
        else (ticks.selectExpr("cast(value as string) as body"))
    )
    writer = frame.writeStream.format("spanmq").options(dsn=database, **options).outputMode(mode)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def act() -> None:
        query = writer.start()
        try:
            query.awaitTermination(SECONDS)
        finally:
            query.stop()

    said = failure(act)
    assert text in said, said
    assert client.metrics("orders").length == 0


def test_purged_batch_stops_the_stream_unless_it_may_lose(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.send_batch("orders", range(10))
    run(stream(), tmp_path)
    forget(tmp_path / "lake" / "_spark_metadata" / last_commit(tmp_path).name)
    forget(last_commit(tmp_path))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update spanmq.receiver_batch set state = 'lost'")
    assert "messages of batch 1 of queue orders are gone" in failure(lambda: run(stream(), tmp_path))
    client.send_batch("orders", [10])
    run(stream(failOnDataLoss="false"), tmp_path)
    assert lake(spark, tmp_path)[10] == 1


def test_epoch_is_sent_once_however_a_replay_is_cut(
    client: Client, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.create_queue("copies")
    client.send_batch("orders", range(100), group="a")

    def forward(**options: Any) -> None:
        frame = stream(**options).selectExpr("body", "`group`")
        writer = frame.writeStream.format("spanmq").option("dsn", database).option("queue", "copies")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    forward()
    forget(last_commit(tmp_path))
    client.send_batch("orders", range(100, 105))
    forward(minPartitions=5)
    received = client.receive("copies", 1000)
    assert Counter(message.body for message in received) == once(105)
    assert received[0].group == "a"


def test_senders_that_commit_late_lose_nothing(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    with psycopg.connect(database) as late, psycopg.connect(database) as never:
        Client(connection=late).send_batch("orders", range(5))
        Client(connection=never).send_batch("orders", [99])
        client.send_batch("orders", range(5, 10))
        run(stream(), tmp_path)
        late.commit()
        never.rollback()
    client.send_batch("orders", [10])
    run(stream(), tmp_path)
    assert lake(spark, tmp_path) == once(11)
