"""Subscriptions through the client."""

import psycopg
import pytest

from spanmq.client import AsyncClient
from spanmq.errors import NotPossibleError, QueueBusyError

pytestmark = pytest.mark.reused


async def test_subscription_gets_what_the_queue_gets(client: AsyncClient) -> None:
    await client.send("orders", 1)
    await client.subscriptions.create("later", "orders")
    await client.subscriptions.create("all", "orders", waiting=True)
    await client.subscriptions.create("all", "orders")
    await client.send_batch("orders", [2, 3])
    assert [each.body for each in await client.receive("later", 9)] == [2, 3]
    assert [each.body for each in await client.receive("all", 9)] == [1, 2, 3]
    assert [each.subscription for each in await client.subscriptions.list("orders")] == ["all", "later"]
    assert {each.queue for each in await client.subscriptions.list()} == {"orders"}
    for refused in (
        lambda: client.send("all", 4),
        lambda: client.subscriptions.create("more", "all"),
        lambda: client.queues.drop("orders"),
    ):
        with pytest.raises(NotPossibleError):
            await refused()
    assert await client.queues.drop("all")
    assert [each.subscription for each in await client.subscriptions.list()] == ["later"]


async def test_transaction_that_stays_open_is_not_waited_for_indefinitely(
    database: str, client: AsyncClient
) -> None:
    hurry = "-c lock_timeout=200ms"
    with psycopg.connect(database) as sender:
        sender.execute("select pgmq.send('orders', '1')")
        async with await psycopg.AsyncConnection.connect(database, options=hurry) as connection:
            with pytest.raises(QueueBusyError, match="does not end"):
                await AsyncClient(connection=connection).subscriptions.create("late", "orders")
    assert await client.subscriptions.list() == []
