"""Sealed bodies: the database can't read them, and what can't be opened is never lost."""

import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cli.program import ask

from spanmq.client import AsyncClient
from spanmq.codec.encryption import Encryption, Unopened
from spanmq.errors import DecryptionError, DedupIdReusedError

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = "a body that nobody may read"


pytestmark = pytest.mark.reused


def with_keys(dsn: str, **keys: bytes) -> AsyncClient:
    return AsyncClient(dsn, encryption=Encryption(keys))


@pytest.fixture
async def orders(database: str) -> AsyncIterator[AsyncClient]:
    async with with_keys(database, old=OLD) as opened:
        await opened.queues.create("orders")
        yield opened


def stored(dsn: str, queue: str = "orders") -> list[str]:
    found = ask(dsn, f"select coalesce(jsonb_agg(message::text order by msg_id), '[]') from pgmq.q_{queue}")
    return list(found)


@pytest.mark.parametrize("body", [SECRET, {"a": [1.5, None, "ü"]}, b"\x00\xff", None, 12345678901234567890])
async def test_body_comes_back_and_is_not_in_the_database(
    orders: AsyncClient, database: str, body: Any
) -> None:
    await orders.send("orders", body)
    await orders.send("orders", body, priority=5)
    await orders.send_batch("orders", [body] * 3)
    assert all(list(json.loads(each)) == ["spanmq.sealed"] for each in stored(database))
    assert not any("nobody" in each for each in stored(database))
    messages = await orders.receive("orders", 10)
    assert [message.body for message in messages] == [body] * 5


async def test_large_batch_and_schedule_and_redriven_body_are_sealed(
    orders: AsyncClient, database: str
) -> None:
    await orders.send_batch("orders", [SECRET] * 3000)
    await orders.schedules.create("tick", "orders", "* * * * *", SECRET)
    assert [each.body for each in await orders.schedules.list()] == [SECRET]
    [message] = await orders.receive("orders")
    await orders.reject(message)
    assert [each.body for each in await orders.dead_letters.list("orders")] == [SECRET]
    await orders.dead_letters.edit("orders", message.message_id, body=SECRET * 2)
    texts = [*stored(database), ask(database, "select message::text from spanmq_core.schedule")]
    assert len(texts) == 3001
    assert not any("nobody" in each for each in texts)


async def test_each_body_is_sealed_anew(orders: AsyncClient, database: str) -> None:
    await orders.send_batch("orders", [SECRET] * 2)
    first, second = (json.loads(each)["spanmq.sealed"] for each in stored(database))
    assert first["data_key"] == second["data_key"]
    assert first["nonce"] != second["nonce"]
    assert first["text"] != second["text"]


async def test_body_of_another_queue_is_given_back_and_not_lost(orders: AsyncClient, database: str) -> None:
    await orders.send("orders", SECRET)
    await orders.queues.create("others")
    ask(database, f"select pgmq.send('others', '{stored(database)[0]}'::jsonb)")
    with pytest.raises(DecryptionError, match="sealed for 'orders'"):
        await orders.receive("others")
    assert (await orders.queues.metrics("others")).length == 1
    async with AsyncClient(database) as plain:
        story = await plain.inspect.failures("others", 1)
    assert [(each.outcome, each.error_class) for each in story] == [("retrying", "DecryptionError")]


async def test_those_that_open_come_and_those_that_do_not_come_again(
    orders: AsyncClient, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_keys(database, new=NEW) as newer:
        await newer.send("orders", "newer")
        await orders.send("orders", "older")
        with caplog.at_level(logging.WARNING, "spanmq"):
            [message] = await orders.receive("orders", 10)
        assert message.body == "older"
        assert "body_unopened queue=orders message=1" in caplog.text
        await orders.ack(message)
        await newer.set_vt("orders", 1, 0)
        assert [each.body for each in await newer.receive("orders", 10)] == ["newer"]


@pytest.mark.parametrize("group", [None, "a"])
async def test_message_behind_one_that_does_not_open_waits_for_it(
    orders: AsyncClient, database: str, group: str | None
) -> None:
    await orders.queues.set_policy("orders", ordered=True)
    async with with_keys(database, new=NEW) as newer:
        await newer.send("orders", "closed", group=group)
    await orders.send("orders", "behind it", group=group)
    await orders.send("orders", "of another group", group="b")
    received = await orders.receive("orders", 10)
    assert [message.body for message in received] == ["of another group"]
    assert [each.outcome for each in await orders.ack(received)] == ["acked"]


async def test_keys_are_rotated_without_a_gap(orders: AsyncClient, database: str) -> None:
    await orders.send("orders", "older")
    async with with_keys(database, old=OLD, new=NEW) as both, with_keys(database, new=NEW) as last:
        await both.send("orders", "newer")
        assert [each.body for each in await both.receive("orders", 10, lease=1)] == ["older", "newer"]
        await both.delete("orders", 1)
        await both.set_vt("orders", 2, 0)
        assert [each.body for each in await last.receive("orders", 10)] == ["newer"]


async def test_looks_and_pops_give_what_does_not_open_as_it_is(orders: AsyncClient, database: str) -> None:
    await orders.send_batch("orders", [SECRET] * 2)
    async with with_keys(database, new=NEW) as other:
        [looked, _] = await other.peek("orders")
        [popped] = await other.pop("orders")
    for message in (looked, popped):
        assert isinstance(message.body, Unopened)
        assert "'old', which this program does not have" in str(message.body.error)
        assert (
            Encryption({"old": OLD}).open(message.body.text.encode(), "orders") == json.dumps(SECRET).encode()
        )


async def test_subscription_opens_what_it_trusts(orders: AsyncClient, database: str) -> None:
    await orders.subscriptions.create("audit", "orders")
    await orders.send("orders", SECRET)
    await orders.queues.create("events")
    await orders.topics.bind("order.*", "events")
    await orders.topics.send("order.new", SECRET)
    keys = Encryption({"old": OLD}, trusted=("orders", "topic order.*"))
    async with AsyncClient(database, encryption=keys) as trusting:
        assert [each.body for each in await trusting.receive("audit")] == [SECRET]
        assert [each.body for each in await trusting.receive("events")] == [SECRET]


async def test_transaction_seals_too(orders: AsyncClient, database: str) -> None:
    async with orders.transaction() as inner:
        await inner.send("orders", SECRET)
        assert [each.body for each in await inner.peek("orders")] == [SECRET]
    assert "nobody" not in stored(database)[0]


async def test_plain_bodies_are_taken_unless_only_sealed_are(orders: AsyncClient, database: str) -> None:
    ask(database, "select pgmq.send('orders', '{\"plain\": true}')")
    assert [each.body for each in await orders.receive("orders")] == [{"plain": True}]
    await orders.set_vt("orders", 1, 0)
    strict = Encryption({"old": OLD}, only_sealed=True)
    async with AsyncClient(database, encryption=strict) as careful:
        with pytest.raises(DecryptionError, match="not sealed"):
            await careful.receive("orders")


async def test_fingerprint_is_stored_as_a_keyed_hash(orders: AsyncClient, database: str) -> None:
    first = await orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4711")
    assert await orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4711") == first
    assert await orders.send_batch("orders", [1], dedup_ids=["a"], fingerprint="PIN 4711") == [first]
    with pytest.raises(DedupIdReusedError):
        await orders.send("orders", 1, dedup_id="a", fingerprint="PIN 4712")
    expected = Encryption({"old": OLD}).fingerprint("PIN 4711", "orders")
    assert ask(database, "select fingerprint from spanmq_core.deduplication") == expected
