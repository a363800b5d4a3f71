"""What a client says of the messages that it holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from spanmq.client import Client
from spanmq.client_async import AsyncClient
from spanmq.errors import InvalidArgumentError, NotSupportedByUpstreamError, QueueNotFoundError
from spanmq.message import Settled


@pytest.fixture
def orders(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


def test_messages_are_given_back_given_up_and_released(orders: Client) -> None:
    ids = orders.send_batch("orders", range(4))
    first, second, third, fourth = orders.receive("orders", 4)
    reason = {"error_class": "ValueError", "traceback": "line 1", "worker": "w1"}
    assert orders.nack(first, "no", category="TRANSIENT", retry_in=timedelta(minutes=5), **reason) == [
        Settled(ids[0], "retrying")
    ]
    assert orders.reject([second], "bad", **reason) == [Settled(ids[1], "dead")]
    assert orders.release([third, fourth]) == [Settled(each, "released") for each in ids[2:]]
    assert [orders.status("orders", each) for each in ids] == ["failed", "dead", "pending", "pending"]
    (failure,) = orders.failures("orders", ids[0])
    assert (failure.outcome, failure.category, failure.error) == ("retrying", "TRANSIENT", "no")
    assert (failure.error_class, failure.traceback, failure.worker) == ("ValueError", "line 1", "w1")
    assert failure.retry_at is not None
    assert failure.retry_at - failure.failed_at >= timedelta(minutes=5)
    assert orders.failures("orders", ids[1])[0].outcome == "dead"
    orders.set_vt("orders", ids[0], 0)
    assert [message.last_error for message in orders.receive("orders", 9)] == ["no", None, None]


def test_messages_of_two_leases_are_settled_as_one(orders: Client) -> None:
    ids = orders.send_batch("orders", range(2))
    messages = [*orders.receive("orders"), *orders.receive("orders")]
    assert orders.nack(messages) == [Settled(each, "retrying") for each in ids]
    for settle in (orders.nack, orders.reject, orders.release):
        assert settle([]) == []
        assert settle(messages) == [Settled(each, "stale") for each in ids]


def test_lease_is_that_of_the_policy_unless_named(orders: Client) -> None:
    orders.send_batch("orders", range(2))
    orders.set_policy("orders", {"lease": 7200})
    (message,) = orders.receive("orders")
    assert message.last_read_at is not None
    assert message.leased_until - message.last_read_at == timedelta(hours=2)
    assert message.lease_id is not None
    assert orders.extend("orders", message.lease_id, 60) == 1
    assert orders.ack_lease("orders", message.lease_id, message.message_id)[0].outcome == "acked"
    assert orders.extend("orders", message.lease_id, 60) == 0


def test_by_ids_and_lease(orders: Client) -> None:
    ids = orders.send_batch("orders", range(3))
    lease_id = orders.receive("orders", 3)[0].lease_id
    assert lease_id is not None
    assert orders.nack_lease("orders", lease_id, ids[0], "x")[0].outcome == "retrying"
    assert orders.reject_lease("orders", lease_id, ids[1:2], "x")[0].outcome == "dead"
    assert orders.release_lease("orders", lease_id, ids)[2].outcome == "released"


def test_paused_queue_gives_nothing(orders: Client) -> None:
    orders.send("orders", 1)
    orders.pause("orders")
    assert orders.receive("orders") == []
    orders.resume("orders")
    assert len(orders.receive("orders")) == 1


def test_bad_arguments(orders: Client) -> None:
    orders.send("orders", 1)
    (message,) = orders.read("orders")
    with pytest.raises(InvalidArgumentError, match="not received under a lease"):
        orders.nack(message)
    for bad in ({"category": "nothing"}, {"error": "\0"}, {"retry_in": -1}, {"worker": 7}):
        with pytest.raises(InvalidArgumentError):
            orders.nack_lease("orders", 5, 1, **bad)
    with pytest.raises(InvalidArgumentError):
        orders.extend("orders", 5, 0)
    with pytest.raises(QueueNotFoundError):
        orders.status("nothing", 1)


def test_asynchronous_twin(database: str) -> None:
    async def run() -> None:
        async with AsyncClient(database, maintain_interval=None) as client:
            await client.create_queue("orders")
            message_id = await client.send("orders", 1)
            messages = await client.receive("orders")
            assert await client.nack(messages, retry_in=0) == [Settled(message_id, "retrying")]
            assert await client.reject(await client.receive("orders")) == [Settled(message_id, "dead")]

    asyncio.run(run())


def test_upstream_has_none_of_it(upstream_database: str) -> None:
    with Client(upstream_database, maintain_interval=None) as client:
        client.create_queue("orders")
        with pytest.raises(NotSupportedByUpstreamError):
            client.nack_lease("orders", 5, 1)
