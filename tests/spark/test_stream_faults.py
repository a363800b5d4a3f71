"""Streams beside others, and what people and servers do to them while they run."""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.spark.conftest import Batch
from tests.spark.test_stream import SECONDS, failure, lake, once, run, start, wait_until

from spanmq import embedded, schema
from spanmq.client import Client
from spanmq.spark.cause import cause_of
from spanmq.testing import FAST_AND_FORGETFUL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def claim(client: Client, database: str, settled: int, quantity: int) -> None:
    """Claim a batch as a driver does that dies before it has logged the offset."""
    receiver = client.list_receivers("orders")[0].receiver_id
    with psycopg.connect(database, autocommit=True) as dead:
        row = dead.execute("select incarnation from pgmq.receiver_open('orders', %s)", [receiver]).fetchone()
        assert row is not None
        dead.execute(
            "select pgmq.receiver_claim('orders', %s, %s, %s, %s)", [receiver, row[0], settled, quantity]
        )


def pausing(frame: DataFrame, folder: Path) -> DataFrame:
    """Let tasks stop before they give their first rows, until there is a file `go`; each makes `hit-TASK`."""
    from pyspark import TaskContext

    def pause(batches: Any) -> Any:
        for batch in batches:
            task = TaskContext.get()
            assert task is not None
            (folder / f"hit-{task.partitionId()}").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
            yield batch

    return frame.mapInArrow(pause, frame.schema)


def test_second_driver_takes_over_and_the_first_stops(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    one, two = tmp_path / "one", tmp_path / "two"
    first = start(stream(), one)
    wait_until(lambda: any(each.settled == 1 for each in client.list_receivers("orders")), first)
    # The same checkpoint, under another id: one process would not run the same query twice.
    shutil.copytree(one, two)
    (two / "checkpoint" / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    (two / "checkpoint" / ".metadata.crc").unlink(missing_ok=True)
    run(stream(), two)
    text = failure(lambda: first.awaitTermination(SECONDS))
    assert "is no longer the receiver" in text
    assert "it was opened by another driver" in text
    client.send_batch("orders", range(10, 20))
    run(stream(), two)
    assert lake(spark, one) == once(10)
    # The files of the first batch are in the first's folder.
    assert lake(spark, two) == once(20) - once(10)
    assert client.metrics("orders").length == 0


def test_deleted_checkpoint_goes_on_after_a_release(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.send_batch("orders", range(10))
    run(stream(receiver="lake"), tmp_path)
    client.send_batch("orders", range(10, 20))
    claim(client, database, 1, 5)
    shutil.rmtree(tmp_path / "checkpoint")
    text = failure(lambda: run(stream(receiver="lake"), tmp_path / "new"))
    assert "the receiver lake of queue orders belongs to another checkpoint" in text
    assert client.release_receiver("orders", "lake") == 5
    run(stream(receiver="lake"), tmp_path / "newer")
    assert lake(spark, tmp_path) + lake(spark, tmp_path / "newer") == once(20)


def test_run_ends_with_what_was_there_at_its_start(
    client: Client, stream: Batch, tmp_path: Path, spark: SparkSession
) -> None:
    client.send_batch("orders", range(10))
    seen: list[int] = []

    def see(batch: Any, _: int) -> None:
        found = [int(row.body) for row in batch.collect()]
        seen.extend(found)
        if found:
            client.send_batch("orders", range(100, 110))

    writer = stream(maxOffsetsPerTrigger=5).writeStream.foreachBatch(see)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(seen) == list(range(10))
    assert client.metrics("orders").visible_length == 20


def test_purge_of_what_a_stream_holds_is_told(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    client.send_batch("orders", range(10))
    run(stream(), tmp_path)
    client.send_batch("orders", range(10, 20))
    claim(client, database, 1, 5)
    client.purge("orders")
    assert "messages of batch 2 of queue orders are gone" in failure(lambda: run(stream(), tmp_path))
    client.send_batch("orders", range(20, 30))
    run(stream(failOnDataLoss="false"), tmp_path)
    assert lake(spark, tmp_path) == once(30) - (once(20) - once(10))


def test_release_while_tasks_run_loses_nothing(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    query = start(pausing(stream(receiver="lake"), tmp_path), tmp_path)
    wait_until((tmp_path / "hit-0").exists, query)
    assert client.release_receiver("orders", "lake") == 10
    (tmp_path / "go").touch()
    text = failure(lambda: query.awaitTermination(SECONDS))
    assert "was released by hand" in text
    run(stream(receiver="lake"), tmp_path / "new")
    # What the first had written before it heard of the release the next one has, too.
    assert lake(spark, tmp_path / "new") == once(10)
    assert client.metrics("orders").length == 0


def test_message_that_the_code_cannot_bear_is_rejected(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    (poison,) = [each.message_id for each in client.peek("orders", 10) if each.body == 3]

    def bear(batches: Any) -> Any:
        for batch in batches:
            if "3" in batch.column("body").to_pylist():
                raise ValueError("no such customer")
            yield batch

    def frame() -> DataFrame:
        given = stream(receiver="lake")
        return given.mapInArrow(bear, given.schema)

    assert "no such customer" in failure(lambda: run(frame(), tmp_path))
    assert "no such customer" in failure(lambda: run(frame(), tmp_path))
    assert client.reject_from_receiver("orders", "lake", poison, "no such customer") == 1
    run(frame(), tmp_path)
    assert lake(spark, tmp_path) == once(10) - Counter([3])
    assert [each.message_id for each in client.dead_letters("orders")] == [poison]
    assert client.metrics("orders").length == 0


@pytest.mark.parametrize("sink", ["parquet", "spanmq"])
def test_asynchronous_progress_tracking_is_refused(
    client: Client, stream: Batch, tmp_path: Path, database: str, sink: str
) -> None:
    writer = stream(columns="body").writeStream.format(sink).option("asyncProgressTrackingEnabled", "true")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    if sink == "spanmq":
        writer = writer.option("dsn", database).option("queue", "orders")
    text = failure(lambda: writer.start(str(tmp_path / "lake")).awaitTermination(SECONDS))
    assert "async progress tracking" in text.lower()
    assert client.list_receivers("orders") == []


def test_error_of_an_executor_comes_out_as_one_message(client: Client, stream: Batch, tmp_path: Path) -> None:
    client.send("orders", "no struct")
    text = failure(lambda: run(stream(bodySchema="order long", mode="failfast"), tmp_path))
    said = 'a body of queue orders does not fit the option bodySchema: "no struct"'
    assert str(cause_of(text)).splitlines()[0] == said


@pytest.mark.slow
def test_server_that_crashes_in_mid_batch_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    # With fsync: what was committed must be there.
    settings = {**FAST_AND_FORGETFUL, "fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
    with embedded.temporary(settings=settings) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            schema.install(connection)
        with Client(server.dsn, maintain_interval=None) as client:
            client.create_queue("orders")
            # More than what fits into the buffers between server, Arrow and Spark.
            client.send_batch("orders", [{"n": i, "pad": "x" * 2000} for i in range(10_000)])

            def frame() -> DataFrame:
                reader = spark.readStream.format("spanmq").option("dsn", server.dsn)
                given = reader.option("queue", "orders").option("minPartitions", 3).load()
                return pausing(given, tmp_path).selectExpr("get_json_object(body, '$.n') as body")

            writer = frame().writeStream.format("parquet").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            query = writer.start(str(tmp_path / "lake"))
            # Both tasks that run at a time: one that had no connection yet would try four times in vain.
            wait_until(lambda: len(list(tmp_path.glob("hit-*"))) == 2, query)
            server.kill()
            server.restart()
            (tmp_path / "go").touch()
            # Its tasks run again; the driver's own connection is gone.
            assert "ConnectionLostError" in failure(query.awaitTermination)
            run(frame(), tmp_path)
            assert lake(spark, tmp_path) == once(10_000)
            assert client.metrics("orders").length == 0


@pytest.mark.slow
def test_two_streams_and_a_worker_share_what_eight_late_senders_commit(
    client: Client, spark: SparkSession, stream: Batch, tmp_path: Path, database: str
) -> None:
    committed: Counter[Any] = Counter()
    lock = threading.Lock()

    def send(number: int) -> None:
        chance = random.Random(number)
        # A transaction ends while the next two of this sender are open.
        opened: list[tuple[Any, list[int]]] = []
        for step in range(12):
            connection = psycopg.connect(database)
            bodies = [number * 10_000 + step * 100 + i for i in range(chance.randint(1, 40))]
            Client(connection=connection).send_batch("orders", bodies)
            opened.append((connection, bodies))
            while len(opened) > (2 if step < 11 else 0):
                late, sent = opened.pop(chance.randrange(len(opened)))
                if chance.random() < 0.3:
                    late.rollback()
                else:
                    late.commit()
                    with lock:
                        committed.update(sent)
                late.close()

    worked: Counter[Any] = Counter()
    is_over = threading.Event()

    def work() -> None:
        with Client(database, maintain_interval=None) as worker:
            while not is_over.is_set():
                for message in (messages := worker.receive("orders", 7, lease=3600)):
                    worked[message.body] += 1
                if messages:
                    worker.ack(messages)
                else:
                    is_over.wait(0.01)

    folders = [tmp_path / "one", tmp_path / "two"]
    queries = [start(stream(maxOffsetsPerTrigger=200), folder) for folder in folders]
    try:
        wait_until(lambda: len(client.list_receivers("orders")) == 2, *queries)
        # These the streams have, before there is a worker; of the rest it is chance who is faster.
        ours = range(900_000, 900_400)
        client.send_batch("orders", ours)
        committed.update(ours)
        wait_until(lambda: client.metrics("orders").length == 0, *queries)
        senders = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        worker = threading.Thread(target=work)
        for thread in [*senders, worker]:
            thread.start()
        for thread in senders:
            thread.join()
        wait_until(lambda: client.metrics("orders").length == 0, *queries)
        is_over.set()
        worker.join()
        assert [query.exception() for query in queries] == [None, None]
    finally:
        is_over.set()
        for query in queries:
            query.stop()
    streamed = [lake(spark, folder) for folder in folders]
    assert streamed[0] + streamed[1] + worked == committed
    assert sum(streamed[0][body] + streamed[1][body] for body in ours) == 400
    assert len(committed) > 900
