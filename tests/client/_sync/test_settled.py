# Generated from tests/client/_async/test_settled.py by tools/generate_sync.py: change that file.

"""Waiting until messages are settled, and their results."""

from __future__ import annotations

import pytest
from tests.client.concurrency import Tasks

from spanmq.client import Client
from spanmq.codec.encryption import Encryption
from spanmq.errors import InvalidArgumentError


@pytest.mark.parametrize("listen", [True, False])
def test_wait_ends_when_all_are_settled(database: str, client: Client, listen: bool) -> None:
    ids = client.send_batch("orders", [1, 2, 3])
    messages = client.receive("orders", 3)
    with (
        Client(database, listen=listen) as waiter,
        Tasks() as tasks,
    ):
        assert waiter.results.wait("orders", ids, seconds=0.01) == ids
        waiting = tasks.start(waiter.results.wait, "orders", ids)
        client.ack(messages[0])
        client.reject(messages[1:])
        assert waiting() == []
        assert waiter.results.wait("orders", ids[0]) == []


def test_result_is_stored_with_the_ack(database: str, client: Client) -> None:
    message_id = client.send("orders", 1)
    [message] = client.receive("orders")
    with client.transaction() as transaction:
        transaction.results.store("orders", message_id, {"price": 1.5})
        assert client.results.get("orders", message_id) == {}
        transaction.ack(message)
    assert client.results.get("orders", [message_id, 99]) == {message_id: {"price": 1.5}}
    with pytest.raises(InvalidArgumentError, match="at most 65536 bytes"):
        client.results.store("orders", message_id, "x" * 70_000)


def test_result_is_sealed_as_bodies_are(database: str, client: Client) -> None:
    keys = Encryption({"one": b"k" * 32})
    with Client(database, encryption=keys) as sealing:
        sealing.results.store("orders", 1, "secret")
        assert sealing.results.get("orders", 1) == {1: "secret"}
    assert "spanmq.sealed" in str(client.results.get("orders", 1))
