"""What a client says of the messages that it holds."""

from datetime import timedelta

import pytest

from spanmq.client import AsyncClient
from spanmq.model import Leased, Settled

pytestmark = pytest.mark.reused


async def test_messages_are_given_back_given_up_and_released(client: AsyncClient) -> None:
    ids = await client.send_batch("orders", range(4))
    first, second, third, fourth = await client.receive("orders", 4)
    reason = {"error_class": "ValueError", "traceback": "line 1", "worker": "w1"}
    assert await client.nack(first, "no", category="TRANSIENT", retry_in=timedelta(minutes=5), **reason) == [
        Settled(ids[0], "retrying")
    ]
    assert await client.reject([second], "bad", **reason) == [Settled(ids[1], "dead")]
    assert await client.release([third, fourth]) == [Settled(each, "released") for each in ids[2:]]
    assert [await client.inspect.state("orders", each) for each in ids] == [
        "failed",
        "dead",
        "pending",
        "pending",
    ]
    (failure,) = await client.inspect.failures("orders", ids[0])
    assert (failure.outcome, failure.category, failure.error) == ("retrying", "TRANSIENT", "no")
    assert (failure.error_class, failure.traceback, failure.worker) == ("ValueError", "line 1", "w1")
    assert failure.retry_at is not None
    assert failure.retry_at - failure.failed_at >= timedelta(minutes=5)
    assert (await client.inspect.failures("orders", ids[1]))[0].outcome == "dead"
    await client.set_vt("orders", ids[0], 0)
    assert [message.last_error for message in await client.receive("orders", 9)] == ["no", None, None]


async def test_messages_of_two_leases_are_settled_as_one(client: AsyncClient) -> None:
    ids = await client.send_batch("orders", range(2))
    messages = [*await client.receive("orders"), *await client.receive("orders")]
    assert await client.nack(messages) == [Settled(each, "retrying") for each in ids]
    for settle in (client.nack, client.reject, client.release):
        assert await settle([]) == []
        assert await settle(messages) == [Settled(each, "stale") for each in ids]


async def test_lease_is_that_of_the_policy_unless_named(client: AsyncClient) -> None:
    await client.send_batch("orders", range(2))
    await client.queues.set_policy("orders", lease=7200)
    (message,) = await client.receive("orders")
    assert message.last_read_at is not None
    assert message.leased_until - message.last_read_at == timedelta(hours=2)
    assert message.lease_id is not None
    assert await client.extend("orders", message.lease_id, 60) == 1
    assert (await client.ack(Leased("orders", message.lease_id, message.message_id)))[0].outcome == "acked"
    assert await client.extend("orders", message.lease_id, 60) == 0
