"""Reading archives and queues as batches, and writing frames into queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.spark.conftest import Batch

from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Let Spark push filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def failure(act: Any) -> str:
    """Give the text of what an act raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps what executors raise
        act()
    return str(caught.value)


def test_archive_is_read_as_it_is(client: Client, batch: Batch) -> None:
    client.send_batch("orders", [{"order": i} for i in range(500)], group="a")
    client.archive("orders", [message.message_id for message in client.receive("orders", 300)])
    frame = batch(table="archive", minPartitions=3, includeHeaders="true")
    assert frame.columns == [
        *("queue", "message_id", "attempt", "enqueued_at", "last_read_at", "archived_at"),
        *("group", "headers", "body"),
    ]
    rows = sorted(frame.collect(), key=lambda row: row.message_id)
    archived = client.peek_archive("orders", 1000)
    assert [(row.message_id, json.loads(row.body), row.group, row.attempt) for row in rows] == [
        (message.message_id, message.body, "a", message.attempt) for message in archived
    ]
    assert json.loads(rows[0].headers) == {"x-pgmq-group": "a"}
    # Spark gives naive times, in the session's zone, which is this process's for Python.
    assert rows[0].archived_at.astimezone() == archived[0].archived_at


def test_waiting_messages_are_read_and_not_taken(client: Client, batch: Batch) -> None:
    client.send_batch("orders", range(400))
    client.receive("orders", 100)
    rows = batch(columns="message_id, attempt, body").collect()
    assert sorted((row.message_id, row.attempt, row.body) for row in rows) == [
        (i + 1, int(i < 100), str(i)) for i in range(400)
    ]
    assert client.metrics("orders").length == 400


def test_dead_letters_are_read_with_their_causes(client: Client, batch: Batch) -> None:
    client.create_queue("others")
    client.send_batch("orders", range(5), group="a")
    client.send("others", 9)
    for queue in ("orders", "others"):
        messages = client.receive(queue, 3)
        client.reject(messages, "no such customer", category="BUSINESS")
    frame = batch(table="dead_letters", minPartitions=2)
    rows = frame.orderBy("message_id").collect()
    assert [(row.message_id, row.body, row.category, row.error, row.group) for row in rows] == [
        (i + 1, str(i), "BUSINESS", "no such customer", "a") for i in range(3)
    ]
    assert frame.filter("category = 'TRANSIENT'").count() == 0
    assert batch("or*, others", table="dead_letters").count() == 4


def test_failures_are_read_once_for_each_message_and_delivery(client: Client, batch: Batch) -> None:
    client.send_batch("orders", range(5))
    client.nack(client.receive("orders", 3), "it's late", category="TRANSIENT", retry_in=0)
    client.reject(client.receive("orders", 2), "no such customer", error_class="KeyError")
    client.nack(client.receive("orders", 2), "a third", retry_in=0)
    columns = ("message_id", "attempt", "outcome", "category", "error", "error_class")
    frame = batch(table="failures", minPartitions=2)
    rows = sorted(tuple(row[name] for name in columns) for row in frame.collect())
    told = [(i, each) for i in range(1, 6) for each in client.failures("orders", i)]
    assert rows == sorted((i, *(getattr(each, name) for name in columns[1:])) for i, each in told)
    assert len(rows) == 7
    assert frame.filter('error = "it\'s late" and message_id >= 2').count() == 2
    assert batch(table="failures", columns="worker, queue").first() == (None, "orders")
    assert batch(table="failures", columns="retry_at").filter("retry_at is null").count() == 2
    client.create_queue("empty")
    assert batch("empty", table="failures").count() == 0


def test_dead_letters_are_parsed_filtered_and_cut_as_all_tables_are(
    client: Client, batch: Batch, pushing: None
) -> None:
    client.send_batch("orders", [{"n": i} if i != 7 else {"n": "seven"} for i in range(10)])
    client.reject(client.receive("orders", 10), "bad", category="PERMANENT")
    frame = batch(table="dead_letters", columns="dead_letter_id, history, body", bodySchema="n int")
    assert frame.columns == ["dead_letter_id", "history", "body"]
    assert sorted(row.body.n for row in frame.collect() if row.body.n is not None) == [
        *range(7),
        *range(8, 10),
    ]
    dropping = batch(table="dead_letters", bodySchema="n int", mode="dropmalformed", minPartitions=4)
    assert dropping.count() == 9
    assert dropping.rdd.getNumPartitions() == 4
    text = failure(batch(table="dead_letters", bodySchema="n int", mode="failfast").collect)
    assert "a body of queue orders does not fit the option bodySchema" in text
    late = batch(table="dead_letters").filter("dead_at > timestamp'2001-01-01' and message_id in (1, 2)")
    assert late.count() == 2
    assert "Filter (" not in late._jdf.queryExecution().executedPlan().toString()


def test_queue_without_messages_is_an_empty_frame(client: Client, batch: Batch) -> None:
    assert batch().count() == 0
    assert batch(table="archive").count() == 0


def test_pattern_reads_several_queues(client: Client, batch: Batch) -> None:
    client.create_queue("Orders-2")
    client.send("orders", 1)
    client.send("Orders-2", 2)
    assert sorted((row.queue, row.body) for row in batch("ord*").collect()) == [
        ("Orders-2", "2"),
        ("orders", "1"),
    ]
    assert batch("orders, Orders-2").count() == 2


def test_frame_may_be_used_with_one_filter_and_another_and_none(client: Client, batch: Batch) -> None:
    client.send_batch("orders", range(10))
    frame = batch()
    assert frame.filter("message_id > 7").count() == 3
    assert frame.filter("message_id < 3").count() == 2
    assert frame.count() == 10


def test_filters_are_done_by_postgresql(client: Client, batch: Batch, pushing: None) -> None:
    client.send_batch("orders", range(10), group="a")
    client.send_batch("orders", range(10), group="it's")
    frame = batch().filter('message_id > 5 and message_id <= 15 and `group` = "it\'s" and attempt in (0, 1)')
    assert sorted(row.message_id for row in frame.collect()) == [11, 12, 13, 14, 15]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan
    late = batch().filter("enqueued_at > timestamp'2001-01-01 00:00:00'")
    assert late.count() == 20
    assert batch().filter("`group` is null").count() == 0


def test_body_is_parsed_by_the_schema(client: Client, batch: Batch) -> None:
    client.send_batch("orders", [{"order": 1, "lines": [{"n": 1}]}, {"order": 2, "more": True}])
    frame = batch(bodySchema="order long, lines array<struct<n: int>>")
    rows = [row.body.asDict(recursive=True) for row in frame.orderBy("message_id").collect()]
    assert rows == [{"order": 1, "lines": [{"n": 1}]}, {"order": 2, "lines": None}]


def test_body_that_does_not_fit_is_dealt_with_as_the_mode_says(client: Client, batch: Batch) -> None:
    client.send_batch("orders", [{"order": 1, "at": "2026-01-01T00:00:00Z"}, {"order": "x", "at": None}, [1]])
    schema = "order int, at timestamp, _corrupt_record string"
    rows = batch(bodySchema=schema).orderBy("message_id").collect()
    assert [row.body.order for row in rows] == [1, None, None]
    assert [row.body._corrupt_record is None for row in rows] == [True, False, False]
    assert batch(bodySchema=schema, mode="dropmalformed").count() == 1
    text = failure(lambda: batch(bodySchema=schema, mode="failfast").collect())
    assert "a body of queue orders does not fit the option bodySchema" in text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "oders"}, "there is no queue 'oders'\nhint: Did you mean orders?"),
        ({"tabel": "archive"}, "no option 'tabel'\nhint: Did you mean table?"),
        ({"table": "archives"}, "Did you mean archive?"),
        ({"columns": "bodi"}, "no column 'bodi'\nhint: Did you mean body?"),
        ({"minPartitions": "0"}, "minPartitions must be a number of 1 or more"),
        ({"dsn": "host=127.0.0.1 port=1 dbname=none connect_timeout=2"}, "ConnectionFailedError"),
    ],
)
def test_bad_option_is_named(client: Client, batch: Batch, options: dict[str, str], text: str) -> None:
    assert text in failure(lambda: batch(**options).count())


def test_frame_is_sent_as_a_whole(client: Client, spark: SparkSession, database: str) -> None:
    frame = spark.range(0, 1000, numPartitions=3).selectExpr(
        "to_json(struct(id)) as body",
        "if(id % 2 = 0, concat('g', id % 4), null) as `group`",
        """if(id = 7, '{"trace": 1}', null) as headers""",
    )
    frame.write.format("spanmq").option("dsn", database).option("queue", "orders").mode("append").save()
    received = client.receive("orders", 1000)
    assert sorted(message.body["id"] for message in received) == list(range(1000))
    by_id = {message.body["id"]: message for message in received}
    assert (by_id[6].group, by_id[7].group, by_id[7].headers) == ("g2", None, {"trace": 1})


def test_failed_task_sends_nothing_and_its_retry_sends_once(
    client: Client, spark: SparkSession, database: str
) -> None:
    def write(frame: Any) -> None:
        frame.write.format("spanmq").option("dsn", database).option("queue", "orders").mode("append").save()

    bad = spark.range(0, 200, numPartitions=2).selectExpr("if(id = 150, '{broken', '1') as body")
    assert "json" in failure(lambda: write(bad))
    assert client.metrics("orders").length == 0
    # The second attempt of a task succeeds; what its first wrote is never seen.
    from pyspark import TaskContext

    def flaky(batches: Any) -> Any:
        yield from batches
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            raise RuntimeError("this attempt fails")

    frame = spark.range(0, 100, numPartitions=2).selectExpr("cast(id as string) as body")
    write(frame.mapInArrow(flaky, "body string"))
    assert sorted(message.body for message in client.receive("orders", 1000)) == list(range(100))
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from spanmq.bulk_block").fetchone() == (0,)


def test_write_with_an_id_is_harmless_to_repeat(client: Client, spark: SparkSession, database: str) -> None:
    frame = spark.range(0, 10, numPartitions=2).selectExpr("cast(id as string) as body")
    for _ in range(2):
        writer = frame.write.format("spanmq").option("dsn", database).option("queue", "orders")
        writer.option("writerId", "load-1").mode("append").save()
    assert client.metrics("orders").length == 10


def test_bad_frame_is_refused(client: Client, spark: SparkSession, database: str) -> None:
    def write(frame: Any, mode: str = "append") -> Any:
        writer = frame.write.format("spanmq").option("dsn", database).option("queue", "orders")
        return lambda: writer.mode(mode).save()

    assert "it has no column 'id'" in failure(write(spark.range(1)))
    assert "must be a string" in failure(write(spark.range(1).selectExpr("id as body")))
    frame = spark.range(1).selectExpr("'1' as body")
    assert "can't be overwritten" in failure(write(frame, "overwrite"))
