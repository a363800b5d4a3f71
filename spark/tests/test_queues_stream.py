"""Streams over a list of queues or a pattern."""

import json
import threading
from collections import Counter
from typing import Any

import psycopg
import pytest
from spark.tests.conftest import Streams
from spark.tests.protocol import SEAMS, Stream
from tests.patience import WAIT_SECONDS, wait_until
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.client import Client
from spanmq.errors import (
    InvalidArgumentError,
    MessagesLostError,
    PipelineError,
    QueueNotFoundError,
    ReceiverInUseError,
)
from spanmq_spark import stream as stream_module
from spanmq_spark.jobs.repairs import moved

QUEUES = ("orders", "orders_eu", "orders_us")


@pytest.fixture
def queues(client: Client) -> Client:
    """Three queues, and one that no pattern here matches."""
    for name in (*QUEUES[1:], "returns"):
        client.queues.create(name)
    return client


def send(client: Client, first: int, last: int) -> None:
    """Send the same numbers to each queue."""
    for queue in (*QUEUES, "returns"):
        client.send_batch(queue, range(first, last))


def arrived(lake: Stream) -> Counter[Any]:
    """Count the messages of each queue that the lake has."""
    return Counter((row["queue"], json.loads(row["body"])) for rows in lake.lake.values() for row in rows)


def each_once(first: int, last: int, *queues: str) -> Counter[Any]:
    return Counter((queue, n) for queue in queues for n in range(first, last))


@pytest.mark.parametrize("wanted", ["orders*", "orders_us, ORDERS,orders_eu"])
@pytest.mark.parametrize("kill", SEAMS)
def test_driver_killed_at_any_seam_loses_and_doubles_nothing_of_any_queue(
    queues: Client, stream: Streams, kill: str, wanted: str
) -> None:
    lake = stream(queue=wanted, maxOffsetsPerTrigger=10)
    lake.run()
    for first in (0, 20):
        send(queues, first, first + 20)
        assert lake.run(kill=kill) == []
        assert sum(lake.run(minPartitions=5)) == (50 if kill == "committed" else 60)
    assert arrived(lake) == each_once(0, 40, *QUEUES)
    assert [queues.queues.metrics(name).length for name in (*QUEUES, "returns")] == [0, 0, 0, 40]
    # The offset of each queue is that of its receiver.
    last = json.loads(lake.logged("offsets")[max(lake.logged("offsets"))].read_text().splitlines()[-1])
    assert {name: each["lease"] for name, each in last["queues"].items()} == {
        each.queue: each.batch for each in queues.admin.receivers.list()
    }


def test_each_queue_has_its_share_and_what_others_leave(queues: Client, stream: Streams) -> None:
    queues.send_batch("orders", range(90))
    queues.send_batch("orders_us", range(5))
    lake = stream(queue="orders*", maxOffsetsPerTrigger=30)
    sizes = lake.run()
    assert (sum(sizes), max(sizes)) == (95, 30)
    first = Counter(row["queue"] for row in next(rows for rows in lake.lake.values() if rows))
    assert first["orders_us"] == 5
    # Fewer messages than queues: every queue has its turn.
    send(queues, 90, 92)
    assert lake.run(maxOffsetsPerTrigger=1) == [1] * 6
    assert arrived(lake) == each_once(0, 92, "orders") + each_once(0, 5, "orders_us") + each_once(
        90, 92, "orders_us", "orders_eu"
    )


def test_small_queues_share_a_task(queues: Client, stream: Streams) -> None:
    send(queues, 0, 10)
    lake = stream(queue="orders*")
    driver = lake.start(is_bounded=True)
    assert (driver.step(), driver.step()) == (0, 30)
    tasks = [driver.reader.partitions(driver.offsets[0], driver.offsets[1])]
    assert [len(each) for each in tasks] == [1]
    assert driver.reader.reportLatestOffset()["waiting"] == 30
    assert driver.reader.reportLatestOffset()["queues"]["orders_eu"]["waiting"] == 10


def test_archives_of_several_queues_are_followed(queues: Client, stream: Streams) -> None:
    send(queues, 0, 10)
    for queue in QUEUES:
        queues.archive(queue, [each.message_id for each in queues.receive(queue, 6)])
    lake = stream(queue="orders_*", table="archive", maxOffsetsPerTrigger=5)
    assert sum(lake.run()) == 12
    for queue in QUEUES:
        queues.archive(queue, [each.message_id for each in queues.receive(queue, 6)])
    assert sum(lake.run()) == 8
    assert arrived(lake) == each_once(0, 10, "orders_eu", "orders_us")


def test_queues_come_and_go(queues: Client, stream: Streams) -> None:
    one = stream(queue="orders")
    queues.send_batch("orders", range(3))
    one.run()
    # The checkpoint of one queue goes on with more of them.
    send(queues, 3, 5)
    assert sum(one.run(queue="orders, orders_eu")) == 4
    with pytest.raises(PipelineError, match=r"the checkpoint has queue orders_eu, which .* does not name"):
        one.run(queue="orders,returns")
    with pytest.raises(
        PipelineError, match="the checkpoint is of queue orders, orders_eu, the option queue is orders"
    ):
        one.run(queue="orders")
    queues.queues.create("orders_new")
    queues.send_batch("orders_new", range(7))
    assert sum(one.run(queue="orders*")) == 9
    queues.queues.drop("orders_eu")
    queues.send_batch("orders", range(5, 8))
    with pytest.raises(MessagesLostError, match="queue orders_eu, which the checkpoint has, was dropped"):
        one.run(queue="orders*")
    assert sum(one.run(queue="orders*", failOnDataLoss=False)) == 3
    assert arrived(one) == (
        each_once(0, 8, "orders") + each_once(3, 5, "orders_eu", "orders_us") + each_once(0, 7, "orders_new")
    )


@pytest.mark.parametrize("table", ["queue", "archive"])
@pytest.mark.parametrize("is_running", [True, False])
def test_queue_that_was_dropped_or_created_again_stops_no_stream_that_may_lose(
    queues: Client, stream: Streams, table: str, is_running: bool
) -> None:
    def sent(first: int, last: int, *names: str) -> None:
        for queue in names:
            ids = queues.send_batch(queue, range(first, last))
            if table == "archive":
                queues.archive(queue, ids)

    lake = stream(queue="orders*", table=table, failOnDataLoss=False)
    sent(0, 3, *QUEUES)
    driver = lake.start()
    assert (driver.step(), driver.step()) == (0, 9)
    queues.queues.drop("orders_eu")
    queues.queues.drop("orders_us")
    queues.queues.create("orders_us")
    assert driver.reader.reportLatestOffset()["queues"].keys() >= {"orders"}
    sent(3, 6, "orders", "orders_us")
    if is_running:
        # The queues are lost, then the new one begins, then it has messages.
        assert [driver.step() for _ in range(3)] == [3, 0, 3]
    else:
        driver.stop()
        assert lake.run() == [3, 3]
    assert arrived(lake) == each_once(0, 3, *QUEUES) + each_once(3, 6, "orders", "orders_us")


def test_stream_stops_where_a_queue_was_created_again(queues: Client, stream: Streams) -> None:
    lake = stream(queue="orders*")
    lake.run()
    queues.queues.drop("orders_us")
    queues.queues.create("orders_us")
    with pytest.raises(MessagesLostError, match="queue orders_us, which the checkpoint has, was dropped"):
        lake.run()


def test_archive_that_joins_late_is_read_from_its_first_message(queues: Client, stream: Streams) -> None:
    lake = stream(queue="orders*", table="archive", startingOffsets="latest")
    queues.archive("orders", queues.send_batch("orders", range(3)))
    lake.run()
    queues.queues.create("orders_new")
    for queue in ("orders", "orders_new"):
        queues.archive(queue, queues.send_batch(queue, range(3, 6)))
    lake.run()
    assert arrived(lake) == each_once(3, 6, "orders", "orders_new")


def test_limit_of_bytes_is_that_of_all_queues(queues: Client, stream: Streams) -> None:
    for queue in QUEUES:
        queues.send_batch(queue, ["x" * 8] * 20)
    lake = stream(queue="orders*", maxBytesPerTrigger="300b")
    driver = lake.start()
    assert (driver.step(), driver.step()) == (0, 30)
    driver.stop()
    assert lake.start().step() == 30


@pytest.mark.parametrize("kill", ["logged", ""])
def test_checkpoint_of_another_kind_of_stream_is_refused(queues: Client, stream: Streams, kill: str) -> None:
    queues.archive("orders", queues.send_batch("orders", range(20))[:10])
    began: tuple[tuple[dict[str, str], dict[str, str]], ...] = (
        ({"queue": "orders"}, {"table": "archive"}),
        ({"table": "archive"}, {"table": "queue"}),
        ({"table": "archive"}, {"table": "queue", "queue": "order[s]"}),
        ({"queue": "order[s]"}, {"table": "archive"}),
        ({"queue": "order[s]"}, {"queue": "orders"}),
    )
    for number, (options, changed) in enumerate(began):
        lake = stream(str(number), maxOffsetsPerTrigger=2, **options)
        lake.run(kill=kill)
        with pytest.raises(PipelineError, match="the checkpoint is of another kind of stream"):
            lake.run(**changed)
    newest = lake.logged("offsets")[max(lake.logged("offsets"))]
    newest.write_text('v1\n{}\n{"topic": {"0": 7}}')
    with pytest.raises(PipelineError, match="the checkpoint is of version None"):
        lake.run()


def test_commands_find_a_queue_in_a_checkpoint_of_several(
    queues: Client, stream: Streams, database: str
) -> None:
    lake = stream(queue="orders*", receiver="lake", maxOffsetsPerTrigger=6)
    send(queues, 0, 3)
    lake.run()
    send(queues, 3, 6)
    lake.run(kill="written")
    assert moved(database, "orders_eu", checkpoint=lake.checkpoint).offsets == 0
    words = ["receiver", "release", "orders_eu", "lake", "--checkpoint", str(lake.checkpoint)]
    done = CliRunner().invoke(app, [*words, "--dsn", database])
    assert done.exit_code == 0, done.output
    # What the checkpoint had committed is settled, and the rest is back.
    assert queues.queues.metrics("orders_eu").visible_length == 3


def test_what_is_wrong_is_refused(queues: Client, stream: Streams) -> None:
    cases: tuple[tuple[dict[str, str], type[Exception], str], ...] = (
        ({"queue": "orders,orderz"}, QueueNotFoundError, "there is no queue 'orderz'"),
        ({"queue": "x*"}, QueueNotFoundError, "there is no queue"),
        ({"queue": "orders*", "columns": "archived_at"}, InvalidArgumentError, "archived_at"),
        ({"queue": "*", "table": "archive", "receiver": "x"}, InvalidArgumentError, "option receiver"),
    )
    for number, (options, error, text) in enumerate(cases):
        with pytest.raises(error, match=text):
            stream(str(number), **options).run()
    # A label that another stream has for one of the queues: none of the others has it then.
    stream("one", queue="orders_us", receiver="lake").run()
    with pytest.raises(ReceiverInUseError, match="receiver lake of queue orders_us belongs to another"):
        stream("two", queue="orders*", receiver="lake").run()
    assert [each.queue for each in queues.admin.receivers.list()] == ["orders_us"]


@pytest.mark.parametrize("queue", ["orders", "orders,others"])
def test_message_wakes_an_idle_stream(
    client: Client,
    observer: psycopg.Connection[Any],
    stream: Streams,
    monkeypatch: pytest.MonkeyPatch,
    queue: str,
) -> None:
    client.queues.create("others")
    # A poll comes after the end of the test.
    monkeypatch.setattr(stream_module, "WAIT_SECONDS", 10 * WAIT_SECONDS)
    driver = stream(queue=queue).start()
    assert driver.step() == 0
    sizes: list[int | None] = []
    for n in (1, 2):
        thread = threading.Thread(target=lambda: sizes.append(driver.step()), daemon=True)
        thread.start()
        until_listening(observer)
        client.send_batch("orders", range(n))
        thread.join(WAIT_SECONDS)
        assert not thread.is_alive()
    assert sizes == [1, 2]


def until_listening(observer: psycopg.Connection[Any]) -> None:
    """Return when a process has announced that it waits: what is sent from now on wakes it."""
    query = (
        "select count(*) from spanmq_core.listener"
        " where pg_sequence_last_value(('spanmq_core.bell_' || bell)::regclass) > 0"
    )
    wait_until(lambda: observer.execute(query).fetchone() == (1,))
