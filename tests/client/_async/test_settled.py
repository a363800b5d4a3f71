"""Waiting until messages are settled, and their results."""

import pytest
from tests.client.concurrency import AsyncTasks

from spanmq.client import AsyncClient
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError
from spanmq.model import Result


@pytest.mark.parametrize("listen", [True, False])
async def test_wait_ends_when_all_are_settled(database: str, client: AsyncClient, listen: bool) -> None:
    ids = await client.send_batch("orders", [1, 2, 3])
    messages = await client.receive("orders", 3)
    async with AsyncClient(database, listen=listen) as waiter, AsyncTasks() as tasks:
        assert await waiter.results.wait("orders", ids, seconds=0.01) == ids
        waiting = tasks.start(waiter.results.wait, "orders", ids)
        await client.ack(messages[0])
        await client.reject(messages[1:])
        assert await waiting() == []
        assert await waiter.results.wait("orders", ids[0]) == []


async def test_result_is_stored_with_the_ack(database: str, client: AsyncClient) -> None:
    message_id = await client.send("orders", 1)
    [message] = await client.receive("orders")
    async with client.transaction() as transaction:
        await transaction.results.store("orders", message_id, {"price": 1.5})
        assert await client.results.get("orders", message_id) == {}
        await transaction.ack(message)
    assert await client.results.get("orders", [message_id, 99]) == {message_id: {"price": 1.5}}
    with pytest.raises(InvalidArgumentError, match="at most 65536 bytes"):
        await client.results.store("orders", message_id, "x" * 70_000)


async def test_message_and_its_result_are_settled_in_one_call(database: str, client: AsyncClient) -> None:
    first, second = await client.send_batch("orders", [1, 2])
    one, two = await client.receive("orders", 2)
    with pytest.raises(InvalidArgumentError, match="at most 65536 bytes"):
        await client.results.ack(one, "x" * 70_000)
    assert (await client.results.ack(one, {"price": 1.5})).outcome == "acked"
    await client.release(two)
    assert (await client.results.ack(two, 2)).outcome == "stale"
    assert await client.results.get("orders", [first, second]) == {first: {"price": 1.5}}
    assert await client.inspect.state("orders", first) == "completed"


async def test_what_became_of_messages_is_listed_in_their_order(database: str, client: AsyncClient) -> None:
    first, second, third = await client.send_batch("orders", [1, 2, 3])
    messages = await client.receive("orders", 2)
    await client.reject(messages[0], "no such customer")
    await client.results.ack(messages[1], None)
    assert await client.results.list("orders", [second, third, first]) == [
        Result("orders", second, "stored"),
        Result("orders", third, "missing"),
        Result("orders", first, "dead", error="no such customer"),
    ]
    with pytest.raises(InvalidArgumentError, match="at most 10000 ids"):
        await client.results.list("orders", range(1, 10_002))


async def test_result_is_sealed_as_bodies_are(database: str, client: AsyncClient) -> None:
    keys = Encryption({"one": b"k" * 32})
    async with AsyncClient(database, encryption=keys) as sealing:
        await sealing.results.store("orders", 1, "secret")
        assert await sealing.results.get("orders", 1) == {1: "secret"}
    assert "spanmq.sealed" in str(await client.results.get("orders", 1))
