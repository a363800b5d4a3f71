"""A worker of a sharded queue: all shards or a part, on two databases, added and removed while it works."""

import threading
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.worker.sharded import GROUPS, at_work
from tests.worker.test_idle import Queries

from spanmq import AsyncClient, AsyncShardedQueue, Message, ShardedQueue, Worker
from spanmq.client import functions
from spanmq.errors import InvalidArgumentError, QueueNotFoundError
from spanmq.worker.event import ShardJoined, ShardLeft, WorkerStarted


def test_worker_receives_from_all_shards_of_all_servers(orders: ShardedQueue) -> None:
    sent = [orders.send(number, group=group) for group in GROUPS for number in range(3)]
    with at_work(orders, lambda message: None) as record:
        settled = record.settled("acked", len(sent))
        assert record.of(WorkerStarted)[0].queues == ("orders_0", "orders_1")
    assert sorted((event.queue, event.message_id) for event in settled) == sorted(sent)
    assert orders.metrics().length == 0


def test_worker_receives_from_a_part_of_the_shards(orders: ShardedQueue) -> None:
    sent = [orders.send(1, group=group) for group in GROUPS]
    theirs = [each for each in sent if each[0] == "orders_1"]
    with at_work(orders, lambda message: None, shards="orders_1") as record:
        assert {event.queue for event in record.settled("acked", len(theirs))} == {"orders_1"}
    assert orders.metrics().length == len(sent) - len(theirs) > 0


def test_worker_takes_an_asynchronous_sharded_queue(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    orders.send(1, group="a")
    sharded = AsyncShardedQueue("orders", {name: AsyncClient(dsn) for name, dsn in dsns.items()})
    with at_work(sharded, lambda message: None) as record:
        record.settled("acked")


def test_handler_writes_where_its_message_is(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    for dsn in dsns.values():
        with psycopg.connect(dsn) as connection:
            connection.execute("create table shipped (shard text, number bigint)")
    sent = sorted(orders.send(1, group=group) for group in GROUPS)

    async def handle(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into shipped values (%s, %s)", [message.queue, message.message_id])

    with at_work(orders, handle) as record:
        record.settled("acked", len(sent))
    found = {}
    for name, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            found[name] = connection.execute("select shard, number from shipped").fetchall()
    assert {shard for shard, _ in found["here"]} == {"orders_0"}
    assert sorted(found["here"] + found["there"]) == sent


@pytest.mark.usefixtures("quick_looks")
def test_shards_that_are_added_and_removed_are_followed(orders: ShardedQueue) -> None:
    with at_work(orders, lambda message: None, poll_interval=0.05) as record:
        orders.change({"orders_1": "there", "orders_2": "here"})
        assert [event.queue for event in record.wait(ShardJoined)] == ["orders_2"]
        for group in GROUPS:
            orders.send(1, group=group)
        settled = record.settled("acked", len(GROUPS))
        assert {event.queue for event in settled} == {"orders_1", "orders_2"}
        # Empty, but a part of the change until it is over.
        assert record.of(ShardLeft) == []
        assert orders.finish()
        assert [event.queue for event in record.wait(ShardLeft)] == ["orders_0"]
        orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
        record.wait(ShardJoined, where=lambda event: event.queue == "orders_0")
        assert orders.finish()
        sent = [orders.send(2, group=group) for group in GROUPS]
        assert {shard for shard, _ in sent} == {"orders_0", "orders_1", "orders_2"}
        record.settled("acked", 2 * len(GROUPS))


@pytest.mark.usefixtures("quick_looks")
def test_removed_shard_is_received_from_until_nothing_is_in_it(orders: ShardedQueue) -> None:
    end = threading.Event()
    with at_work(orders, lambda message: end.wait(WAIT_SECONDS), concurrency=1) as record:
        orders.servers["here"].send_batch("orders_0", range(5))
        # As after a change that somebody ended without asking: the map says nothing of it any more.
        there = orders.shards()
        for client in orders.servers.values():
            client.admin.run(functions.forget_shards("orders"))
            moved = type(there)(queue="orders", epoch=5, routing="group", shards={"orders_1": "there"})
            client.admin.run(functions.set_shards(moved))
        end.set()
        # Between the two statements the worker may have found no map at all.
        record.wait(ShardLeft, where=lambda event: event.queue == "orders_0")
        assert len(record.settled("acked", 5)) == 5


@pytest.mark.usefixtures("quick_looks")
def test_shard_that_is_dropped_is_left(orders: ShardedQueue) -> None:
    with at_work(orders, lambda message: None) as record:
        orders.change({"orders_1": "there"})
        assert orders.finish()
        orders.servers["here"].queues.drop("orders_0")
        record.wait(ShardLeft)
        orders.send(1, group="a")
        record.settled("acked")


def test_what_makes_no_sense_is_refused(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    refused: list[dict[str, Any]] = [
        {"queues": orders, "dsn": dsns["here"]},
        {"queues": "orders"},
        {"queues": "orders", "dsn": dsns["here"], "shards": "orders_0"},
        {"queues": orders, "shards": []},
        {"queues": orders, "shards": ["orders_0", "orders_0"]},
    ]
    for arguments in refused:
        with pytest.raises(InvalidArgumentError):
            Worker(arguments.pop("queues"), print, **arguments)
    here = ShardedQueue("orders", {"here": orders.servers["here"]})
    other = ShardedQueue("other", orders.servers)
    for sharded, shards, error in (
        (orders, ["orders_7"], InvalidArgumentError),
        (here, None, InvalidArgumentError),  # the map names a server more
        (other, None, QueueNotFoundError),
    ):
        with pytest.raises(error):
            Worker(sharded, print, shards=shards, observers=()).run()
    orders.send_batch([1, 2], group="a")
    with at_work(here, lambda message: None, shards=["orders_0"]):
        pass  # of the other server nothing is asked


@pytest.mark.usefixtures("quick_looks")
def test_shard_that_can_not_be_joined_at_first_is_joined_later(
    orders: ShardedQueue, dsns: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = orders.servers["here"], orders.shards()
    queries = Queries(monkeypatch, dsns["here"])
    with at_work(orders, lambda message: None, poll_interval=0.05) as record:
        shards = {"orders_0": "here", "orders_1": "there", "orders_2": "here"}
        moved = type(there)(queue="orders", epoch=there.epoch + 1, routing="group", shards=shards)
        for client in orders.servers.values():
            client.admin.run(functions.set_shards(moved))
        # It asks for the policy of a queue that does not exist, and again when it looks again.
        queries.wait("get_policy", 2)
        here.queues.create("orders_2")
        here.send("orders_2", 1)
        assert [event.queue for event in record.wait(ShardJoined)] == ["orders_2"]
        assert [event.queue for event in record.settled("acked")] == ["orders_2"]
