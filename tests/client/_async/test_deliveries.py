"""What a client says of the messages that it holds."""

from datetime import timedelta

import pytest

from spanmq.client import AsyncClient
from spanmq.model import Leased, Settled

pytestmark = pytest.mark.reused


async def test_messages_of_several_leases_and_queues_are_settled_as_one(client: AsyncClient) -> None:
    await client.queues.create("events")
    ids = [*await client.send_batch("orders", range(2)), await client.send("events", 1)]
    messages = [
        message for queue in ("orders", "orders", "events") for message in await client.receive(queue)
    ]
    assert await client.nack(messages) == [Settled(id_, "retrying") for id_ in ids]
    for settle in (client.ack, client.nack, client.reject, client.release):
        assert await settle([]) == []
        assert await settle(messages) == [Settled(id_, "stale") for id_ in ids]
        assert await settle(messages[0]) == [Settled(ids[0], "stale")]


async def test_lease_is_that_of_the_policy_and_a_pause_the_receivers(client: AsyncClient) -> None:
    await client.send_batch("orders", range(2))
    await client.queues.set_policy("orders", lease=7200)
    (message,) = await client.receive("orders")
    assert message.last_read_at is not None
    assert message.leased_until - message.last_read_at == timedelta(hours=2)
    assert message.lease_id is not None
    assert (await client.extend(message, 60))[0].outcome == "extended"
    assert (await client.ack(Leased("orders", message.lease_id, message.message_id)))[0].outcome == "acked"
    assert (await client.extend(message, 60))[0].outcome == "stale"
    (message,) = await client.receive("orders")
    await client.nack(message, "no", retry_in=timedelta(minutes=5))
    (failure,) = await client.inspect.failures("orders", message.message_id)
    assert failure.retry_at is not None
    assert failure.retry_at - failure.failed_at >= timedelta(minutes=5)
