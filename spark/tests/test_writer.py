"""What tasks write that run twice: speculative ones, late ones, those of a job that was given up."""

from collections import Counter
from collections.abc import Iterator

import psycopg
import pyarrow
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql.types import StructType
from spark.tests.conftest import Load, new_role
from tests.cli.program import ask, do

from spanmq.client import Client
from spanmq.errors import InvalidBodyError, PipelineError
from spanmq_spark.options import Options, read_options
from spanmq_spark.writer import close, for_queue, publish, write_rows

BODIES = [str(i) for i in range(100)]


def batches() -> Iterator[pyarrow.RecordBatch]:
    yield pyarrow.RecordBatch.from_pydict({"body": BODIES[:60]})
    yield pyarrow.RecordBatch.from_pydict({"body": BODIES[60:]})


@pytest.fixture
def options(client: Client, database: str) -> Options:
    return read_options({"dsn": database, "queue": "orders"})


def test_of_two_attempts_of_a_task_one_is_seen(client: Client, options: Options, database: str) -> None:
    first = write_rows(options, "write:1", 0, batches())
    second = write_rows(options, "write:1", 0, batches())
    assert client.queues.metrics("orders").length == 0
    # The driver is told of the one that ended first, whichever that is.
    assert publish(options, "write:1", 0, [second]) == 100
    assert Counter(message.body for message in client.receive("orders", 1000)) == Counter(range(100))
    # A driver that lost the answer asks again, with whatever it has.
    assert publish(options, "write:1", 0, [first]) == 0
    close(options, "write:1", 0)
    assert client.queues.metrics("orders").length == 100
    assert ask(database, "select count(*) from spanmq_core.bulk_block") == 0


def test_write_across_segments_keeps_each_row(client: Client, database: str) -> None:
    client.queues.create("small", partition_interval=256)
    do(database, "select setval('pgmq.q_small_msg_id_seq', 16350)")
    options = read_options({"dsn": database, "queue": "small"})
    assert publish(options, "write:1", 0, [write_rows(options, "write:1", 0, batches())]) == 100
    assert [message.body for message in client.receive("small", 1000)] == list(range(100))


def test_task_writes_large_bodies_in_blocks_of_bounded_size(client: Client, options: Options) -> None:
    # Of one Arrow batch, as Spark sends it, and of several; the third body is larger than a block.
    sizes = [5_000_000, 5_000_000, 17_000_000, *[5_000_000] * 5]
    bodies = [f'"{n}{"x" * size}"' for n, size in enumerate(sizes)]
    frames = [
        pyarrow.RecordBatch.from_pydict({"body": each}) for each in (bodies[:5], bodies[5:7], bodies[7:])
    ]
    written = write_rows(options, "write:1", 0, iter(frames))
    assert (written.count, len(written.block_ids)) == (8, 4)
    assert publish(options, "write:1", 0, [written]) == 8
    assert [(message.body[0], len(message.body)) for message in client.receive("orders", 10)] == [
        (str(n), size + 1) for n, size in enumerate(sizes)
    ]


def test_tasks_without_rows_hinder_nobody(client: Client, options: Options) -> None:
    without = write_rows(options, "write:1", 0, iter([]))
    with_rows = write_rows(options, "write:1", 0, batches())
    # A filter may leave a task nothing, also the first.
    assert publish(options, "write:1", 0, [without, None, with_rows, without]) == 100
    assert publish(options, "write:2", 0, [without]) == 0
    assert client.queues.metrics("orders").length == 100


def test_attempt_that_comes_after_all_is_published_writes_nothing(client: Client, options: Options) -> None:
    assert publish(options, "query:1", 0, [write_rows(options, "query:1", 0, batches())]) == 100
    late = write_rows(options, "query:1", 0, batches())
    assert (late.write_id, late.block_ids, late.count) == (None, (), 100)
    assert publish(options, "query:1", 0, [late]) == 0
    assert client.queues.metrics("orders").length == 100


def test_stream_that_is_not_told_its_epoch_writes_nothing(client: Client, load: Load, database: str) -> None:
    # Outside of a task of Spark's, where its undocumented names are not known.
    writer = load().source.streamWriter(StructType().add("body", "string"), False)
    with pytest.raises(PipelineError, match="does not tell its tasks which query and epoch"):
        writer.write(batches())
    assert ask(database, "select count(*) from spanmq_core.bulk_write") == 0


def test_role_that_may_only_send_writes(client: Client, database: str) -> None:
    with new_role(database) as role:
        client.admin.grants.create(role, "orders", "send")
        asked = read_options({"dsn": make_conninfo(database, user=role), "queue": "ORDERS"})
        assert for_queue(asked).queue == "orders"


def test_option_names_the_column_of_the_group(client: Client, database: str) -> None:
    options = read_options({"dsn": database, "queue": "orders", "group": "customer"})
    rows = {"body": ["1", "2", "3"], "customer": ["a", None, "b"], "headers": [None, None, '{"trace": 1}']}
    written = write_rows(options, "write:1", 0, iter([pyarrow.RecordBatch.from_pydict(rows)]))
    publish(options, "write:1", 0, [written])
    found = {each.body: (each.group, each.headers) for each in client.receive("orders", 10)}
    assert (found[1][0], found[2], found[3][0]) == ("a", (None, None), "b")
    assert found[3][1] == {"trace": 1, "x-pgmq-group": "b"}


@pytest.mark.parametrize("groups", [None, ["a"]])
def test_headers_are_objects_and_keep_their_digits(
    client: Client, options: Options, database: str, groups: list[str] | None
) -> None:
    def frame(headers: str) -> pyarrow.RecordBatch:
        return pyarrow.RecordBatch.from_pydict(
            {"body": ["1"], "headers": [headers], **({"group": groups} if groups else {})}
        )

    for text in ("5", "[1]", "null", '"x"', "{x", '{"a": NaN}', "[" * 100_000):
        with pytest.raises(InvalidBodyError, match="the headers of a message for queue orders are not"):
            write_rows(options, "write:1", 0, iter([frame(text)]))
    exact = '{"h": 12345678901234567890.123456789, "z": 1.10}'
    for number, text in enumerate((exact, " { } ", '{"x-pgmq-group": "b", "é": "\\u00fc"}')):
        publish(options, "write:2", number, [write_rows(options, "write:2", number, iter([frame(text)]))])
    with psycopg.connect(database) as connection:
        found = connection.execute("select headers - 'x-pgmq-group' from pgmq.q_orders order by msg_id")
        kept = connection.execute(
            "select headers::text from pgmq.q_orders order by msg_id limit 1"
        ).fetchone()
        assert found.fetchall()[1:] == [({},), ({"é": "ü"},)]
    assert kept is not None
    assert '"h": 12345678901234567890.123456789, "z": 1.10' in kept[0]
    if groups:
        assert [each.group for each in client.receive("orders", 3)] == ["a", "a", "a"]
