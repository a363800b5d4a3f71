"""Reading archives and queues as batches, and writing frames into queues."""

import json
import re
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, IsNull, LessThanOrEqual
from pyspark.sql.types import StructType
from spark.tests.conftest import Load
from spark.tests.protocol import Rows, Source, run, save
from tests.cli.program import ask

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, InvalidBodyError, PipelineError, SpanmqError
from spanmq_spark.filters import FilteringReader
from spanmq_spark.options import read_options
from spanmq_spark.reader import BatchReader


def pushed(source: Source, *filters: Filter) -> Rows:
    """Read with filters, all of which PostgreSQL must do."""
    reader = FilteringReader(read_options(source.source.options), source.schema)
    assert list(reader.pushFilters(list(filters))) == []
    return source.rows(reader)


def test_archive_is_read_as_it_is(client: Client, load: Load) -> None:
    client.send_batch("orders", [{"order": i} for i in range(500)], group="a")
    client.archive("orders", [message.message_id for message in client.receive("orders", 300)])
    source = load(table="archive", minPartitions=3, includeHeaders="true")
    assert source.schema.names == [
        *("queue", "message_id", "attempt", "enqueued_at", "last_read_at", "archived_at"),
        *("group", "headers", "body"),
    ]
    rows = sorted(source.rows(), key=lambda row: row["message_id"])
    archived = client.inspect.archive("orders", 1000)
    columns = ("message_id", "group", "attempt", "archived_at")
    assert [(json.loads(row["body"]), *(row[name] for name in columns)) for row in rows] == [
        (each.body, each.message_id, "a", each.attempt, each.archived_at) for each in archived
    ]
    assert json.loads(rows[0]["headers"]) == {"x-pgmq-group": "a"}
    assert len(source.planned(source.source.reader(source.schema))[1]) == 3


def test_part_of_an_archive_is_read(client: Client, load: Load, database: str) -> None:
    client.archive("orders", client.send_batch("orders", range(10)))
    with psycopg.connect(database, autocommit=True) as connection:
        day = "timestamptz '2026-01-01Z' + interval '1 day' * msg_id"
        connection.execute(f"update pgmq.a_orders set archived_at = {day}".encode())
    cases: tuple[tuple[dict[str, str], list[int] | None], ...] = (
        ({"startingOffsets": "4", "endingOffsets": "7"}, [4, 5, 6]),
        ({"startingOffsets": "earliest", "endingOffsets": "3"}, [1, 2]),
        ({"startingOffsets": "9", "endingOffsets": "latest"}, [9, 10]),
        ({"startingOffsets": "11"}, []),
        ({"startingTimestamp": "2026-01-10", "endingTimestamp": "2026-01-11T01:00:00+02:00"}, [9]),
        ({"startingTimestamp": "2026-01-10T01:00:00", "startingOffsets": "earliest"}, None),
    )
    for options, ids in cases:
        if ids is None:
            with pytest.raises(InvalidArgumentError, match="choose one of the options startingOffsets and"):
                load(table="archive", **options).rows()
        else:
            assert [row["message_id"] for row in load(table="archive", **options).rows()] == ids


def test_schema_of_a_user_chooses_columns(client: Client, load: Load) -> None:
    client.send("orders", 7)
    source = load()

    def rows(schema: StructType) -> Rows:
        task, partitions = source.planned(source.source.reader(schema), schema)
        return [row for each in partitions for batch in run(task, each, schema) for row in batch.to_pylist()]

    assert rows(StructType().add("body", "string").add("message_id", "long")) == [
        {"body": "7", "message_id": 1}
    ]
    with pytest.raises(
        InvalidArgumentError, match="the schema has the column 'a', which is not one of queue, "
    ):
        rows(StructType().add("a", "integer"))
    with pytest.raises(InvalidArgumentError, match="has the column message_id as string, it is bigint"):
        rows(StructType().add("message_id", "string"))


@pytest.mark.parametrize("table", ["queue", "archive", "dead_letters", "failures"])
def test_partitions_have_about_as_many_rows_however_far_apart_the_ids_are(
    client: Client, load: Load, database: str, table: str
) -> None:
    sequence = (
        "spanmq_core.dead_letter_dead_letter_id_seq"
        if table == "dead_letters"
        else "pgmq.q_orders_msg_id_seq"
    )
    for first_id in (1, 900_000_000):
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("select setval(%s, %s, false)", [sequence, first_id])
        messages = client.send_batch("orders", range(2 if first_id == 1 else 600))
        if table == "archive":
            client.archive("orders", messages)
        elif table != "queue":
            client.reject(client.receive("orders", 1000), "bad", category="PERMANENT")

    def sizes(**options: Any) -> list[int]:
        source = load(table=table, **options)
        task, partitions = source.planned(source.source.reader(source.schema))
        return [sum(batch.num_rows for batch in run(task, each, source.schema)) for each in partitions]

    assert sizes() == [602]
    found = sizes(minPartitions=4)
    assert (len(found), sum(found)) == (4, 602)
    assert max(found) < 250


def test_waiting_messages_are_read_and_not_taken(client: Client, load: Load) -> None:
    client.send_batch("orders", range(400))
    client.receive("orders", 100)
    rows = sorted(load(columns="message_id, attempt, body").rows(), key=lambda row: row["message_id"])
    assert rows == [{"message_id": i + 1, "attempt": int(i < 100), "body": str(i)} for i in range(400)]
    assert client.queues.metrics("orders").length == 400


def test_dead_letters_are_read_with_their_causes(client: Client, load: Load) -> None:
    client.queues.create("others")
    client.send_batch("orders", range(5), group="a")
    client.send("others", 9)
    for queue in ("orders", "others"):
        messages = client.receive(queue, 3)
        client.reject(messages, "no such customer", category="BUSINESS")
    columns = ("message_id", "body", "category", "error", "group")
    rows = load(table="dead_letters", minPartitions=2).rows()
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (i + 1, str(i), "BUSINESS", "no such customer", "a") for i in range(3)
    ]
    assert len(load("or*, others", table="dead_letters").rows()) == 4


def test_failures_are_read_once_for_each_message_and_delivery(client: Client, load: Load) -> None:
    client.send_batch("orders", range(5))
    client.nack(client.receive("orders", 3), "it's late", category="TRANSIENT", retry_in=0)
    client.reject(client.receive("orders", 2), "no such customer", error_class="KeyError")
    client.nack(client.receive("orders", 2), "a third", retry_in=0)
    columns = ("message_id", "attempt", "outcome", "category", "error", "error_class")
    source = load(table="failures", minPartitions=2)
    rows = sorted(tuple(row[name] for name in columns) for row in source.rows())
    told = [(i, each) for i in range(1, 6) for each in client.inspect.failures("orders", i)]
    assert rows == sorted((i, *(getattr(each, name) for name in columns[1:])) for i, each in told)
    assert len(rows) == 7
    assert len(pushed(source, EqualTo(("error",), "it's late"), GreaterThan(("message_id",), 1))) == 2
    assert len(pushed(source, IsNull(("retry_at",)))) == 2
    assert load(table="failures", columns="worker, queue").rows()[0] == {"worker": None, "queue": "orders"}
    client.queues.create("empty")
    assert load("empty", table="failures").rows() == []


def test_queue_without_messages_is_an_empty_frame(client: Client, load: Load) -> None:
    assert load().rows() == load(table="archive").rows() == []


def test_pattern_reads_several_queues(client: Client, load: Load) -> None:
    client.queues.create("Orders-2")
    client.send("orders", 1)
    client.send("Orders-2", 2)
    for names in ("ord*", "orders, Orders-2", "ORDERS,orders-2"):
        rows = load(names, columns="queue, body").rows()
        assert sorted(tuple(row.values()) for row in rows) == [("Orders-2", "2"), ("orders", "1")]


def test_filters_are_done_by_postgresql(client: Client, load: Load) -> None:
    client.send_batch("orders", range(10), group="a")
    client.send_batch("orders", range(10), group="it's")
    ids = (GreaterThan(("message_id",), 5), LessThanOrEqual(("message_id",), 15))
    rows = pushed(load(), *ids, EqualTo(("group",), "it's"), In(("attempt",), (0, 1)), IsNotNull(("body",)))
    assert [row["message_id"] for row in rows] == [11, 12, 13, 14, 15]
    assert pushed(load(), IsNull(("group",))) == []
    assert len(pushed(load(), EqualTo(("queue",), "orders"))) == 20
    past = datetime(2001, 1, 1, tzinfo=UTC)
    assert len(pushed(load(), GreaterThan(("enqueued_at",), past))) == 20
    client.reject(client.receive("orders", 3), "bad")
    dead = load(table="dead_letters")
    assert len(pushed(dead, GreaterThan(("dead_at",), past), In(("message_id",), (1, 2)))) == 2


def test_release_without_filters_says_so(client: Client, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("pyspark.sql.datasource.Filter")
    source = load(table="archive", pushFilters="true")
    with pytest.raises(PipelineError, match="passes no filters to a source"):
        source.rows()


def test_filters_that_postgresql_does_otherwise_stay_with_spark(client: Client, load: Load) -> None:
    for source, unlike in (
        (load(), GreaterThan(("group",), "a")),
        (load(table="dead_letters"), GreaterThan(("error",), "Z")),
        (load(table="failures"), LessThanOrEqual(("outcome",), "dead")),
        (load(), EqualTo(("body", "n"), 1)),
        (load(), EqualTo(("group",), "{queue}")),
        (load(encryptionKeyFile="keys"), EqualTo(("body",), "1")),
    ):
        reader = FilteringReader(read_options(source.source.options), source.schema)
        assert list(reader.pushFilters([unlike])) == [unlike]
    # Where the session pushes none down, Spark refuses a reader that takes any.
    assert type(load().source.reader(load().schema)) is BatchReader


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "oders"}, "there is no queue 'oders'\nhint: Did you mean orders?"),
        ({"tabel": "archive"}, "no option 'tabel'\nhint: Did you mean table?"),
        ({"table": "archives"}, "Did you mean archive?"),
        ({"columns": "bodi"}, "no column 'bodi'\nhint: Did you mean body?"),
        ({"minPartitions": "0"}, "minPartitions must be a number of 1 or more"),
        ({"columns": "message_id,body, message_id"}, "the option columns has the name 'message_id' twice"),
        ({"receiver": "lake"}, "the option receiver is not for a batch read"),
        ({"table": "archive", "startingOffsets": "latest"}, "a batch can't begin with the latest"),
        ({"endingTimestamp": "2026-01-01"}, "the option endingTimestamp is for the table archive"),
        ({"table": "archive", "endingTimestamp": "17698608000000000"}, "must be a time"),
        ({"table": "archive", "endingTimestamp": "soon"}, "endingTimestamp must be a time, got 'soon'"),
        ({"dsn": "host=127.0.0.1 port=1 dbname=none connect_timeout=2"}, "Connection refused"),
    ],
)
def test_bad_option_is_named(client: Client, load: Load, options: dict[str, str], text: str) -> None:
    with pytest.raises(SpanmqError) as caught:
        load(**options).rows()
    assert text in str(caught.value)


def test_failed_task_sends_nothing_and_its_retry_sends_once(
    client: Client, load: Load, database: str
) -> None:
    with pytest.raises(InvalidBodyError, match="json"):
        save(load(), {"body": ["1", "2"]}, {"body": ["{broken"]})
    assert client.queues.metrics("orders").length == 0
    # The last attempt of a task counts; what the first wrote is never seen.
    save(load(), {"body": list(map(str, range(50)))}, {"body": list(map(str, range(50, 100)))}, attempts=2)
    assert sorted(message.body for message in client.receive("orders", 1000)) == list(range(100))
    assert ask(database, "select count(*) from spanmq_core.bulk_block") == 0


def test_write_with_an_id_is_harmless_to_repeat(client: Client, load: Load) -> None:
    for _ in range(2):
        save(load(writerId="load-1"), {"body": ["1", "2"]}, {"body": ["3"]})
    assert Counter(message.body for message in client.receive("orders", 10)) == Counter([1, 2, 3])
    save(load(), {"body": ["4"]})
    save(load(), {"body": ["4"]})
    assert client.queues.metrics("orders").length == 5


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        ({"id": ["1"]}, {}, "it has no column 'id'"),
        ({"body": [1]}, {}, "the column body must be a string"),
        ({"body": ["1"]}, {"overwrite": True}, "can't be overwritten"),
        ({"body": ["1"]}, {"table": "archive"}, "the option table is not for a batch write"),
        # What is not the group would be left out without a word.
        (["body", "group"], {"group": "customer"}, "option group names the column 'customer'"),
        (["body", "custommer"], {"group": "customer"}, "names the column 'customer'.*Did you mean custommer"),
        (
            ["body", "customer", "group"],
            {"group": "customer"},
            "body, headers and customer: it has no column 'group'",
        ),
        (["body", "customer"], {}, "body, headers and group: it has no column 'customer'"),
        (["customer"], {"group": "customer"}, "the column body is missing"),
    ],
)
def test_frame_that_can_not_be_messages_is_refused(
    client: Client, load: Load, columns: Any, options: dict[str, Any], text: str
) -> None:
    frame = columns if isinstance(columns, dict) else {name: ["1"] for name in columns}
    overwrite = options.pop("overwrite", False)
    with pytest.raises(InvalidArgumentError) as caught:
        save(load(**options), frame, overwrite=overwrite)
    assert re.search(text, str(caught.value), re.DOTALL)
    assert client.queues.metrics("orders").length == 0
