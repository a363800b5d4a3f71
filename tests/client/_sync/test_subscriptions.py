# Generated from tests/client/_async/test_subscriptions.py by tools/generate_sync.py: change that file.

"""Subscriptions through the client."""

import psycopg
import pytest

from spanmq.client import Client
from spanmq.errors import NotPossibleError, QueueBusyError


@pytest.fixture
def database(reused_database: str) -> str:
    return reused_database


def test_subscription_gets_what_the_queue_gets(client: Client) -> None:
    client.send("orders", 1)
    client.subscriptions.create("later", "orders")
    client.subscriptions.create("all", "orders", waiting=True)
    client.subscriptions.create("all", "orders")
    client.send_batch("orders", [2, 3])
    assert [each.body for each in client.receive("later", 9)] == [2, 3]
    assert [each.body for each in client.receive("all", 9)] == [1, 2, 3]
    assert [each.subscription for each in client.subscriptions.list("orders")] == ["all", "later"]
    assert {each.queue for each in client.subscriptions.list()} == {"orders"}
    for refused in (
        lambda: client.send("all", 4),
        lambda: client.subscriptions.create("more", "all"),
        lambda: client.queues.drop("orders"),
    ):
        with pytest.raises(NotPossibleError):
            refused()
    assert client.queues.drop("all")
    assert [each.subscription for each in client.subscriptions.list()] == ["later"]


def test_transaction_that_stays_open_is_not_waited_for_indefinitely(database: str, client: Client) -> None:
    hurry = "-c lock_timeout=200ms"
    with psycopg.connect(database) as sender:
        sender.execute("select pgmq.send('orders', '1')")
        with psycopg.Connection.connect(database, options=hurry) as connection:
            with pytest.raises(QueueBusyError, match="does not end"):
                Client(connection=connection).subscriptions.create("late", "orders")
    assert client.subscriptions.list() == []
