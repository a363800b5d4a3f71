"""Sealed bodies: the database can't read them, and what can't be opened is never lost."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.program import ask, records, spanmq
from tests.service.running import service

from spanmq import encryption as sealing
from spanmq.client import Client
from spanmq.encryption import Encryption, Unopened, envelope_of
from spanmq.errors import DecryptionError, EncryptionError

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = "a body that nobody may read"


def client(dsn: str, **keys: bytes) -> Client:
    return Client(dsn, maintain_interval=None, encryption=Encryption(keys))


@pytest.fixture
def orders(database: str) -> Iterator[Client]:
    with client(database, old=OLD) as opened:
        opened.create_queue("orders")
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
    orders.schedule("tick", "orders", "* * * * *", SECRET)
    assert [each.body for each in orders.list_schedules()] == [SECRET]
    [message] = orders.receive("orders")
    orders.reject(message)
    assert [each.body for each in orders.dead_letters("orders")] == [SECRET]
    orders.redrive_message("orders", message.message_id, body=SECRET * 2)
    texts = [*stored(database), ask(database, "select message::text from spanmq.schedule")]
    assert len(texts) == 3001
    assert not any("nobody" in each for each in texts)


def test_each_body_is_sealed_anew(orders: Client, database: str) -> None:
    orders.send_batch("orders", [SECRET] * 2)
    first, second = (json.loads(each)["spanmq.sealed"] for each in stored(database))
    assert first["data_key"] == second["data_key"]
    assert first["nonce"] != second["nonce"]
    assert first["text"] != second["text"]


def test_data_key_is_used_for_so_many_bodies_and_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def data_key(sealed: str) -> str:
        return str(json.loads(sealed)["spanmq.sealed"]["data_key"])

    monkeypatch.setattr(sealing, "DATA_KEY_BODIES", 2)
    keys = Encryption({"old": OLD})
    made = [data_key(keys.seal("1", "orders")) for _ in range(3)]
    assert made[0] == made[1] != made[2]
    monkeypatch.setattr(sealing, "DATA_KEY_SECONDS", -1.0)
    keys = Encryption({"old": OLD})
    assert data_key(keys.seal("1", "orders")) != data_key(keys.seal("1", "orders"))


@pytest.mark.parametrize("part", ["key", "data_key", "for", "nonce", "text"])
def test_what_was_changed_does_not_open(part: str) -> None:
    keys = Encryption({"old": OLD, "new": OLD}, trusted=("*",))
    sealed = json.loads(keys.seal('"x"', "orders"))
    envelope = sealed["spanmq.sealed"]
    first = envelope[part][0]
    envelope[part] = {"key": "old", "for": "others"}.get(
        part, ("B" if first != "B" else "C") + envelope[part][1:]
    )
    opened = keys.open(json.dumps(sealed).encode(), "orders")
    assert isinstance(opened, Unopened)
    assert isinstance(opened.error, DecryptionError)


def test_body_of_another_queue_is_given_back_and_not_lost(orders: Client, database: str) -> None:
    orders.send("orders", SECRET)
    orders.create_queue("others")
    ask(database, f"select pgmq.send('others', '{stored(database)[0]}'::jsonb)")
    with pytest.raises(DecryptionError, match="sealed for 'orders'"):
        orders.receive("others")
    assert orders.metrics("others").length == 1
    with Client(database, maintain_interval=None) as plain:
        story = plain.failures("others", 1)
    assert [(each.outcome, each.error_class) for each in story] == [("retrying", "DecryptionError")]


def test_those_that_open_come_and_those_that_do_not_come_again(
    orders: Client, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with client(database, new=NEW) as newer:
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
    with client(database, old=OLD, new=NEW) as both, client(database, new=NEW) as last:
        both.send("orders", "newer")
        assert [each.body for each in both.receive("orders", 10, lease=1)] == ["older", "newer"]
        both.delete("orders", 1)
        both.set_vt("orders", 2, 0)
        assert [each.body for each in last.receive("orders", 10)] == ["newer"]


def test_looks_and_pops_give_what_does_not_open_as_it_is(orders: Client, database: str) -> None:
    orders.send_batch("orders", [SECRET] * 2)
    with client(database, new=NEW) as other:
        [looked, _] = other.peek("orders")
        [popped] = other.pop("orders")
    for message in (looked, popped):
        assert isinstance(message.body, Unopened)
        assert "'old', which is not here" in str(message.body.error)
        assert orders._codec.of("orders").decode(message.body.text.encode()) == SECRET


def test_subscription_opens_what_it_trusts(orders: Client, database: str) -> None:
    orders.create_subscription("audit", "orders")
    orders.send("orders", SECRET)
    orders.create_queue("events")
    orders.bind_topic("order.*", "events")
    orders.send_topic("order.new", SECRET)
    keys = Encryption({"old": OLD}, trusted=("orders", "topic order.*"))
    with Client(database, maintain_interval=None, encryption=keys) as trusting:
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
    with (
        Client(database, maintain_interval=None, encryption=strict) as careful,
        pytest.raises(DecryptionError, match="not sealed"),
    ):
        careful.receive("orders")


def test_what_looks_like_a_sealed_body_is_one_only_if_it_is_whole() -> None:
    for text in (
        '{"spanmq.sealed": 1}',
        '{"spanmq.sealed": {"key": "a"}}',
        '"spanmq.sealed"',
        '{"spanmq.sealed',
    ):
        assert envelope_of(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        "old AAAA",
        f"old {'A' * 43}= more",
        f"{'A' * 43}=",
        f"a/b {'A' * 43}=",
        f"old {'B' * 43}=\nold {'B' * 43}=",
        "",
    ],
)
def test_bad_file_of_keys_is_refused_without_a_word_of_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(EncryptionError) as raised:
        Encryption.from_file(path)
    assert "AAAA" not in str(raised.value)
    assert "BBBB" not in str(raised.value)


def test_keys_are_in_no_text_of_it() -> None:
    keys = Encryption({"old": OLD})
    assert "oooo" not in f"{keys!r} {keys}"


def test_file_of_keys_is_its_owners_and_tells_which_are_in_use(database: str, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for key_id in ("first", "second"):
        [made] = records("encryption", "add-key", str(path), "--id", key_id, dsn=database)
        assert made["key"] == key_id
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert spanmq("encryption", "add-key", str(path), "--id", "first", dsn=database).code == 1
    with Client(database, maintain_interval=None, encryption=Encryption.from_file(path)) as opened:
        opened.create_queue("orders")
        opened.send_batch("orders", [1, 2])
        opened.reject(opened.receive("orders"))
    assert records("encryption", "in-use", "orders", dsn=database) == [
        {"where": "messages", "key": "second", "bodies": 1},
        {"where": "dead letters", "key": "second", "bodies": 1},
    ]


def test_commands_and_the_service_open_with_the_keys_of_their_environment(
    database: str, tmp_path: Path
) -> None:
    path = tmp_path / "keys"
    spanmq("encryption", "add-key", str(path), dsn=database)
    keys = {sealing.FILE_VARIABLE: str(path)}
    spanmq("create-queue", "orders", dsn=database)
    spanmq("send", "orders", json.dumps(SECRET), dsn=database, more=keys)
    with service(database, tmp_path, more=keys) as running, running.client() as http:
        assert http.post("/v1/queues/orders/messages", json={"body": SECRET}).status_code == 201
        assert not any("nobody" in each for each in stored(database))
        messages = http.post("/v1/queues/orders/receive", json={"quantity": 10}).json()["messages"]
    assert [each["body"] for each in messages] == [SECRET] * 2
