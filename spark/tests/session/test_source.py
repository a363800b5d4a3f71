"""The data source in Spark's own engine: what spark/tests shows holds where Spark speaks the protocol."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow
import pyarrow.parquet
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType
from spark.tests.real_session import Read, failure, forget_last_commit, lake, run
from tests.cli.program import ask
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.codec.encryption import SEALED_KEY
from spanmq.errors import DecryptionError
from spanmq_spark.bodies import parse_bodies, registered_schema
from spanmq_spark.cause import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[None]:
    """Let Spark push filters down."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def flaky(batches: Any) -> Any:
    """Fail at the end of a task's first attempt."""
    yield from batches
    task = TaskContext.get()
    if task is not None and task.attemptNumber() == 0:
        raise RuntimeError("this attempt fails")


def test_batch_is_read_in_partitions_and_used_with_one_filter_and_another_and_none(
    client: Client, read: Read
) -> None:
    client.send_batch("orders", range(10))
    frame = read(minPartitions=3)
    assert frame.filter("message_id > 7").count() == 3
    assert frame.filter("message_id < 3").count() == 2
    rows = frame.collect()
    assert sorted(row.body for row in rows) == sorted(map(str, range(10)))
    # Spark gives naive times, in the session's zone, which is this process's for Python.
    assert rows[0].enqueued_at.astimezone() == client.peek("orders")[0].enqueued_at
    assert frame.rdd.getNumPartitions() == 3


def test_filters_are_pushed_down_and_bodies_parsed(client: Client, read: Read, pushing: None) -> None:
    client.send_batch("orders", [{"n": i, "lines": [{"sku": "it's"}]} for i in range(10)], group="it's")
    client.reject(client.receive("orders", 10), "bad", category="PERMANENT")
    frame = parse_bodies(
        read(table="dead_letters", pushFilters="true"), "n int, lines array<struct<sku: string>>"
    )
    late = "dead_at > timestamp'2001-01-01' and message_id in (1, 2) and `group` = \"it's\""
    chosen = frame.filter(late)
    assert sorted(row.body.n for row in chosen.collect()) == [0, 1]
    assert "Filter (" not in chosen._jdf.queryExecution().executedPlan().toString()
    assert frame.filter("body.n > 7 and `group` is not null").select("body.lines.sku").first() == (["it's"],)


def test_bodies_that_do_not_fit_are_dealt_with_as_from_json_does(client: Client, read: Read) -> None:
    client.send_batch("orders", [{"n": 1}, {"n": "x"}, {"n": 3, "at": "31/01/2026"}])
    fields = "n int, at date, _corrupt_record string"
    frame = parse_bodies(read(), fields, dateFormat="dd/MM/yyyy").orderBy("message_id")
    rows = [(row.body.n, row.body._corrupt_record) for row in frame.collect()]
    assert rows == [(1, None), (None, '{"n": "x"}'), (3, None)]
    assert frame.selectExpr("string(max(body.at)) as at").first() == ("2026-01-31",)
    for schema in (StructType().add("n", "long"), StructType().add("n", "long").json()):
        assert parse_bodies(read(), schema).filter("body.n = 3").count() == 1
    assert "MALFORMED_RECORD" in failure(lambda: parse_bodies(read(), "n int", mode="FAILFAST").collect())
    # Not nulls, which a body without the fields has.
    client.send("orders", {SEALED_KEY: "first"})
    error = cause_of(failure(lambda: parse_bodies(read(), "n int").collect()))
    assert isinstance(error, DecryptionError)
    assert "encryptionKeyFile" in str(error)


def test_errors_come_out_with_their_hints_as_one_message(
    client: Client, read: Read, read_stream: Read, tmp_path: Path
) -> None:
    assert "there is no queue 'oders'\nhint: Did you mean orders?" in failure(lambda: read("oders").count())
    assert "no option 'tabel'\nhint: Did you mean table?" in failure(lambda: read(tabel="archive").count())
    client.send("orders", {SEALED_KEY: "first"})
    frame = read_stream(encryptionKeyFile=str(tmp_path / "none"))
    assert "can't be read" in str(cause_of(failure(lambda: run(frame, tmp_path)))).splitlines()[0]


def test_frame_is_sent_as_a_whole_by_tasks_that_fail_and_run_again(
    client: Client, spark: SparkSession, database: str
) -> None:
    def write(frame: Any, mode: str = "append") -> None:
        frame.write.format("spanmq").options(dsn=database, queue="orders").mode(mode).save()

    bad = spark.range(0, 200, numPartitions=2).selectExpr("if(id = 150, '{broken', '1') as body")
    assert "json" in failure(lambda: write(bad))
    assert "can't be overwritten" in failure(lambda: write(bad, "overwrite"))
    assert client.queues.metrics("orders").length == 0
    frame = spark.range(0, 1000, numPartitions=3).selectExpr(
        "to_json(struct(id)) as body",
        "if(id % 2 = 0, concat('g', id % 4), null) as `group`",
        """if(id = 7, '{"trace": 1}', null) as headers""",
    )
    write(frame.mapInArrow(flaky, frame.schema))
    by_id = {message.body["id"]: message for message in client.receive("orders", 2000)}
    assert sorted(by_id) == list(range(1000))
    assert (by_id[6].group, by_id[7].group, by_id[7].headers) == ("g2", None, {"trace": 1})
    assert ask(database, "select count(*) from spanmq_core.bulk_block") == 0


@pytest.mark.parametrize(("sink_has_it", "queue"), [(False, "orders"), (True, "order*")])
def test_stream_delivers_each_message_once_and_its_checkpoint_proves_what_is_done(
    client: Client,
    spark: SparkSession,
    read_stream: Read,
    tmp_path: Path,
    database: str,
    sink_has_it: bool,
    queue: str,
) -> None:
    client.send_batch("orders", range(700), group="a")
    frame = read_stream(queue, receiver="lake", maxOffsetsPerTrigger=300, minPartitions=2)
    assert run(frame.mapInArrow(flaky, frame.schema), tmp_path) == [300, 300, 100]
    client.send_batch("orders", range(700, 1000))
    # Killed before Spark's commit; before or after the sink's.
    forget_last_commit(tmp_path, of_sink=not sink_has_it)
    run(read_stream(queue, receiver="lake", minPartitions=3), tmp_path)
    assert lake(spark, tmp_path) == Counter(range(1000))
    assert client.queues.metrics("orders").length == 0
    checkpoint = ["--checkpoint", str(tmp_path / "checkpoint"), "--dsn", database, "--json"]
    done = CliRunner().invoke(app, ["receiver", "release", "orders", "lake", *checkpoint])
    assert json.loads(done.stdout) == {"queue": "orders", "receiver": "lake", "released": 0}


def test_stream_goes_on_with_added_fields_and_wider_types(
    client: Client, spark: SparkSession, read_stream: Read, tmp_path: Path
) -> None:
    old, new = "n int, price decimal(4,2)", "n bigint, price decimal(38,18), more array<string>"
    client.send_batch("orders", [{"n": n, "price": 1.25} for n in range(3)])
    run(parse_bodies(read_stream(maxOffsetsPerTrigger=2), old), tmp_path)
    # The last batch of the old schema comes again by the new one.
    forget_last_commit(tmp_path, of_sink=True)
    client.send_batch("orders", [{"n": 1 << 40, "price": 12345.5, "more": ["x"]}])
    run(parse_bodies(read_stream(), new), tmp_path)
    kept = spark.read.schema(f"message_id long, body struct<{new}>").parquet(str(tmp_path / "lake"))
    rows = kept.selectExpr("body.n", "cast(body.price as double) price", "body.more").orderBy("n").collect()
    assert [tuple(row) for row in rows] == [*((n, 1.25, None) for n in range(3)), (1 << 40, 12345.5, ["x"])]
    assert client.queues.metrics("orders").length == 0


def test_stream_that_starts_again_reads_by_the_schema_that_the_queue_has_then(
    client: Client, spark: SparkSession, read_stream: Read, database: str, tmp_path: Path
) -> None:
    properties: dict[str, Any] = {
        "n": {"type": ["integer", "null"], "format": "int64"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "object", "additionalProperties": {"type": "number"}},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
    }
    line = {"type": "object", "properties": {"the sku": {"type": "string"}}}
    schema = {"type": "object", "properties": properties, "$defs": {"line": line}}
    client.queues.set_schema("orders", schema)
    body = {
        "n": 1,
        "at": "2026-01-31T12:00:00Z",
        "tags": {"a": 0.5},
        "lines": [{"the sku": "x"}],
        "more": True,
    }
    client.send("orders", body)
    frame = parse_bodies(read_stream(), registered_schema(database, "orders"))
    kind = "array<struct<the sku:string>>"
    assert frame.schema["body"].dataType.simpleString() == (
        f"struct<n:bigint,at:timestamp,tags:map<string,double>,lines:{kind}>"
    )
    run(frame, tmp_path)
    client.queues.set_schema("orders", schema | {"properties": properties | {"more": {"type": "boolean"}}})
    client.send("orders", body | {"n": None})
    run(parse_bodies(read_stream(), registered_schema(database, "orders")), tmp_path)
    quoted = kind.replace("the sku", "`the sku`")
    fields = f"n bigint, at timestamp, tags map<string, double>, lines {quoted}, more boolean"
    kept = spark.read.schema(f"message_id long, body struct<{fields}>").parquet(str(tmp_path / "lake"))
    rows = kept.selectExpr(
        "body.n", "unix_seconds(body.at)", "body.tags", "body.lines[0].`the sku`", "body.more"
    )
    at = 1_769_860_800
    assert sorted(map(tuple, rows.collect()), key=str) == [
        (1, at, {"a": 0.5}, "x", None),
        (None, at, {"a": 0.5}, "x", True),
    ]


def test_run_with_foreach_batch_ends_with_what_was_there_at_its_start(
    client: Client, read_stream: Read, tmp_path: Path
) -> None:
    client.send_batch("orders", range(10))
    seen: list[int] = []

    def see(batch: Any, _: int) -> None:
        found = [int(row.body) for row in batch.collect()]
        seen.extend(found)
        if found:
            client.send_batch("orders", range(100, 110))

    writer = read_stream(maxOffsetsPerTrigger=5).writeStream.foreachBatch(see)
    writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen) == list(range(10))
    assert client.queues.metrics("orders").visible_length == 20


def test_stream_over_an_archive_parses_bodies_and_replays_the_same_rows(
    client: Client, spark: SparkSession, read_stream: Read, tmp_path: Path
) -> None:
    def frame(**options: Any) -> Any:
        found = parse_bodies(read_stream(table="archive", **options), "n int")
        return found.selectExpr("to_json(body) as body")

    client.archive("orders", client.send_batch("orders", [{"n": i} for i in range(100)]))
    assert run(frame(maxOffsetsPerTrigger=60, minPartitions=2), tmp_path) == [60, 40]
    forget_last_commit(tmp_path, of_sink=True)
    client.archive("orders", client.send_batch("orders", [{"n": i} for i in range(100, 150)]))
    assert run(frame(minPartitions=4), tmp_path) == [40, 50]
    files = spark.read.parquet(str(tmp_path / "lake")).collect()
    assert sorted(json.loads(row.body)["n"] for row in files) == list(range(150))


@pytest.mark.parametrize("sink", ["parquet", "spanmq"])
def test_asynchronous_progress_tracking_is_refused(
    client: Client, read_stream: Read, tmp_path: Path, database: str, sink: str
) -> None:
    options = {"dsn": database, "queue": "orders"} if sink == "spanmq" else {}
    options["asyncProgressTrackingEnabled"] = "true"
    text = failure(lambda: run(read_stream(columns="body"), tmp_path, format=sink, **options))
    assert "async progress tracking" in text.lower()
    assert client.admin.receivers.list("orders") == []


def test_bodies_have_no_least_and_greatest_in_parquet(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr("id as message_id", "to_json(struct(id)) as body")
    frame.write.parquet(str(tmp_path / "lake"))
    [path] = (tmp_path / "lake").glob("*.parquet")
    group = pyarrow.parquet.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i).statistics for i in range(2)}
    assert columns["message_id"].max == 9
    assert columns["body"] is None or not columns["body"].has_min_max


def test_table_of_the_catalogue_is_read_and_inserted_into(
    client: Client, spark: SparkSession, database: str
) -> None:
    def create(name: str, **options: str) -> None:
        text = ", ".join(f"{key} '{value}'" for key, value in {"dsn": database, **options}.items())
        spark.sql(f"create table {name} using spanmq options ({text}) comment 'of a queue'")

    names = ("orders_table", "archived")
    try:
        create("orders_table", queue="orders", includeHeaders="true")
        create("archived", queue="orders", table="archive")
        statement = (
            """insert into orders_table (body, `group`) select to_json(struct(id)), 'a' from range(3)"""
        )
        spark.sql(statement)
        assert spark.table("orders_table").where("get_json_object(body, '$.id') = 1").count() == 1
        assert {row.group for row in spark.sql("select `group` from orders_table").collect()} == {"a"}
        client.archive("orders", [1, 2])
        assert spark.table("archived").count() == 2
        # Options of a statement come before the table's own.
        assert spark.sql("select * from archived with (endingOffsets=2)").count() == 1
        assert "message_id can't be written" in failure(
            lambda: spark.sql("insert into orders_table select * from orders_table")
        )
        assert "nothing can be inserted into a table that reads archive" in failure(
            lambda: spark.sql("insert into archived (body) values ('1')")
        )
        assert "can't have a password" in failure(
            lambda: create("orders_table_2", dsn="postgresql://me:secret@localhost/", queue="orders")
        )
        assert client.queues.metrics("orders").length == 1
    finally:
        for name in names:
            spark.sql(f"drop table if exists {name}")


def test_table_of_postgres_gets_each_epoch_once_and_a_batch_whole(
    client: Client, spark: SparkSession, read_stream: Read, database: str, empty_database: str, tmp_path: Path
) -> None:
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute("create table orders (message_id bigint primary key, body jsonb, n int)")
        sink = {"dsn": empty_database, "table": "public.orders"}

        def write() -> None:
            frame = (
                read_stream()
                .selectExpr("message_id", "body", "cast(body as int) as n")
                .mapInArrow(flaky, "message_id long, body string, n int")
            )
            writer = frame.repartition(3).writeStream.format("spanmq").options(**sink)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
                availableNow=True
            )
            writer.start().awaitTermination()

        client.send_batch("orders", range(10))
        write()
        forget_last_commit(tmp_path)
        client.send_batch("orders", range(10, 15))
        write()
        # Without rows.
        write()
        spark.range(2).selectExpr("id + 100 as message_id", "'{}' as body").write.format("spanmq").options(
            **sink
        ).mode("append").save()
        found = connection.execute("select n, body::text from orders order by 1").fetchall()
        assert found == [*((n, str(n)) for n in range(15)), (None, "{}"), (None, "{}")]
        with pytest.raises(Exception, match="n") as error:
            spark.range(1).selectExpr("id as message_id", "'x' as n").write.format("spanmq").options(
                **sink
            ).mode("append").save()
        assert "the column n can't be written into public.orders" in str(error.value)
        epochs = connection.execute(
            "select count(*), sum(n) from spanmq_sink.ledger where writer like 'query:%'"
        ).fetchone()
        assert epochs is not None
        assert epochs[1] == 15
