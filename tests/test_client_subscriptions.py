"""Subscriptions through the client, and the page about them."""

import asyncio
import re
from pathlib import Path

import psycopg
import pytest

from spanmq.client import Client
from spanmq.client_async import AsyncClient
from spanmq.errors import QueueBusyError, SubscriptionError

PAGE = Path(__file__).parent.parent / "docs" / "subscriptions.md"


def test_subscription_gets_what_the_queue_gets(database: str) -> None:
    with Client(database) as client:
        client.create_queue("orders")
        client.send("orders", 1)
        client.create_subscription("later", "orders")
        client.create_subscription("all", "orders", waiting=True)
        client.create_subscription("all", "orders")
        client.send_batch("orders", [2, 3])
        assert [each.body for each in client.receive("later", 9)] == [2, 3]
        assert [each.body for each in client.receive("all", 9)] == [1, 2, 3]
        assert [each.subscription for each in client.list_subscriptions("orders")] == ["all", "later"]
        assert {each.queue for each in client.list_subscriptions()} == {"orders"}
        for refused in (
            lambda: client.send("all", 4),
            lambda: client.create_subscription("more", "all"),
            lambda: client.drop_queue("orders"),
        ):
            with pytest.raises(SubscriptionError):
                refused()
        assert client.drop_queue("all")
        assert [each.subscription for each in client.list_subscriptions()] == ["later"]


def test_transaction_that_stays_open_is_not_waited_for_for_ever(database: str) -> None:
    with Client(database) as client, psycopg.connect(database) as sender:
        client.create_queue("orders")
        sender.execute("select pgmq.send('orders', '1')")
        with psycopg.connect(database, options="-c lock_timeout=200ms") as connection:
            hurried = Client(connection=connection)
            with pytest.raises(QueueBusyError, match="does not end"):
                hurried.create_subscription("late", "orders")
        assert client.list_subscriptions() == []


def test_asynchronous_client_has_them_too(database: str) -> None:
    async def run() -> None:
        async with AsyncClient(database) as client:
            await client.create_queue("orders")
            await client.create_subscription("audit", "orders")
            assert [each.subscription for each in await client.list_subscriptions("orders")] == ["audit"]

    asyncio.run(run())


def test_example_of_the_page_runs(database: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(example, {"dsn": database})
