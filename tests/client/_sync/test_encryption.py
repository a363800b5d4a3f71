# Generated from tests/client/_async/test_encryption.py by tools/generate_sync.py: change that file.

"""Sealed bodies: the database can't read them, and what can't be opened is never lost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.program import ask

from spanmq.client import Client
from spanmq.codec.encryption import Encryption, Unopened
from spanmq.errors import DecryptionError, DedupIdReusedError

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = "a body that nobody may read"


@pytest.fixture
def database(reused_database: str) -> str:
    return reused_database


def with_keys(dsn: str, **keys: bytes) -> Client:
    return Client(dsn, encryption=Encryption(keys))


@pytest.fixture
def orders(database: str) -> Iterator[Client]:
    with with_keys(database, old=OLD) as opened:
        opened.queues.create("orders")
        yield opened


def stored(dsn: str, queue: str = "orders") -> list[str]:
    found = ask(dsn, f"select coalesce(jsonb_agg(message::text order by msg_id), '[]') from pgmq.q_{queue}")
    return list(found)


@pytest.mark.parametrize("body", [SECRET, {"a": [1.5, None, "ü"]}, b"\x00\xff", None, 12345678901234567890])
def test_body_comes_back_and_is_not_in_the_database(orders: Client, database: str, body: Any) -> None:
    orders.send("orders", body)
    orders.send("orders", body, priority=5)
    orders.send_batch("orders", [body] * 3)
    assert all(list(json.loads(each)) == ["spanmq.sealed"] for each in stored(database))
    assert not any("nobody" in each for each in stored(database))
    messages = orders.receive("orders", 10)
    assert [message.body for message in messages] == [body] * 5


def test_large_batch_and_schedule_and_redriven_body_are_sealed(orders: Client, database: str) -> None:
    orders.send_batch("orders", [SECRET] * 3000)
    orders.schedules.create("tick", "orders", "* * * * *", SECRET)
    assert [each.body for each in orders.schedules.list()] == [SECRET]
    [message] = orders.receive("orders")
    orders.reject(message)
    assert [each.body for each in orders.dead_letters.list("orders")] == [SECRET]
    orders.dead_letters.edit("orders", message.message_id, body=SECRET * 2)
    texts = [*stored(database), ask(database, "select message::text from spanmq_core.schedule")]
    assert len(texts) == 3001
    assert not any("nobody" in each for each in texts)


def test_each_body_is_sealed_anew(orders: Client, database: str) -> None:
    orders.send_batch("orders", [SECRET] * 2)
    first, second = (json.loads(each)["spanmq.sealed"] for each in stored(database))
    assert first["data_key"] == second["data_key"]
    assert first["nonce"] != second["nonce"]
    assert first["text"] != second["text"]


def test_body_of_another_queue_is_given_back_and_not_lost(orders: Client, database: str) -> None:
    orders.send("orders", SECRET)
    orders.queues.create("others")
    ask(database, f"select pgmq.send('others', '{stored(database)[0]}'::jsonb)")
    with pytest.raises(DecryptionError, match="sealed for 'orders'"):
        orders.receive("others")
    assert (orders.queues.metrics("others")).length == 1
    with Client(database) as plain:
        story = plain.inspect.failures("others", 1)
    assert [(each.outcome, each.error_class) for each in story] == [("retrying", "DecryptionError")]


def test_those_that_open_come_and_those_that_do_not_come_again(
    orders: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with with_keys(database, new=NEW) as newer:
        newer.send("orders", "newer")
        orders.send("orders", "older")
        with caplog.at_level(logging.WARNING, "spanmq"):
            [message] = orders.receive("orders", 10)
        assert message.body == "older"
        assert "body_unopened queue=orders message=1" in caplog.text
        orders.ack(message)
        newer.set_vt("orders", 1, 0)
        assert [each.body for each in newer.receive("orders", 10)] == ["newer"]


def test_keys_are_rotated_without_a_gap(orders: Client, database: str) -> None:
    orders.send("orders", "older")
    with (
        with_keys(database, old=OLD, new=NEW) as both,
        with_keys(database, new=NEW) as last,
    ):
        both.send("orders", "newer")
        assert [each.body for each in both.receive("orders", 10, lease=1)] == ["older", "newer"]
        both.delete("orders", 1)
        both.set_vt("orders", 2, 0)
        assert [each.body for each in last.receive("orders", 10)] == ["newer"]


def test_looks_and_pops_give_what_does_not_open_as_it_is(orders: Client, database: str) -> None:
    orders.send_batch("orders", [SECRET] * 2)
    with with_keys(database, new=NEW) as other:
        [looked, _] = other.peek("orders")
        [popped] = other.pop("orders")
    for message in (looked, popped):
        assert isinstance(message.body, Unopened)
        assert "'old', which is not here" in str(message.body.error)
        assert (
            Encryption({"old": OLD}).open(message.body.text.encode(), "orders") == json.dumps(SECRET).encode()
        )


def test_subscription_opens_what_it_trusts(orders: Client, database: str) -> None:
    orders.subscriptions.create("audit", "orders")
    orders.send("orders", SECRET)
    orders.queues.create("events")
    orders.topics.bind("order.*", "events")
    orders.topics.send("order.new", SECRET)
    keys = Encryption({"old": OLD}, trusted=("orders", "topic order.*"))
    with Client(database, encryption=keys) as trusting:
        assert [each.body for each in trusting.receive("audit")] == [SECRET]
        assert [each.body for each in trusting.receive("events")] == [SECRET]


def test_transaction_seals_too(orders: Client, database: str) -> None:
    with orders.transaction() as inner:
        inner.send("orders", SECRET)
        assert [each.body for each in inner.peek("orders")] == [SECRET]
    assert "nobody" not in stored(database)[0]


def test_plain_bodies_are_taken_unless_only_sealed_are(orders: Client, database: str) -> None:
    ask(database, "select pgmq.send('orders', '{\"plain\": true}')")
    assert [each.body for each in orders.receive("orders")] == [{"plain": True}]
    orders.set_vt("orders", 1, 0)
    strict = Encryption({"old": OLD}, only_sealed=True)
    with Client(database, encryption=strict) as careful:
        with pytest.raises(DecryptionError, match="not sealed"):
            careful.receive("orders")


def test_fingerprint_is_stored_as_a_keyed_hash(orders: Client, database: str) -> None:
    first = orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4711")
    assert orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4711") == first
    assert orders.send_batch("orders", [1], dedup_ids=["a"], fingerprint="PIN 4711") == [first]
    with pytest.raises(DedupIdReusedError):
        orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4712")
    expected = Encryption({"old": OLD}).fingerprint("PIN 4711", "orders")
    assert ask(database, "select fingerprint from spanmq_core.deduplication") == expected
