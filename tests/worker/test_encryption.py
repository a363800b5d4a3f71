"""A worker whose keys stand in its environment."""

import asyncio
import base64
import secrets
import signal
from typing import Any

import pytest
from tests.cli.program import wait_until
from tests.worker.running import working

from spanmq import Client, Message, Worker
from spanmq.codec.encryption import KEYS_VARIABLE, ONLY_SEALED_VARIABLE, TRUSTED_VARIABLE, Encryption
from spanmq.errors import EncryptionError
from spanmq.worker.event import CallFailed, MessageSettled

KEY, OTHER = (base64.b64encode(secrets.token_bytes(32)).decode() for _ in range(2))


@pytest.fixture
def sealing(database: str, monkeypatch: pytest.MonkeyPatch) -> Encryption:
    monkeypatch.setenv(KEYS_VARIABLE, f"ours {KEY}")
    found = Encryption.from_environment()
    assert found is not None
    return found


class Bodies(list[Any]):
    """A handler that keeps the bodies that it gets."""

    async def __call__(self, message: Message) -> None:
        self.append(message.body)


def test_handler_gets_opened_bodies(client: Client, database: str, sealing: Encryption) -> None:
    with Client(database, encryption=sealing) as sender:
        sender.send("orders", {"secret": 1})
    assert "secret" not in str(client.peek("orders"))
    bodies = Bodies()
    with working(database, bodies) as record:
        record.outcomes(1)
    assert bodies == [{"secret": 1}]


def test_worker_whose_keys_can_not_be_read_leaves_no_handlers_of_signals(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, "no key")

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    async def work() -> None:
        before = handlers()
        with pytest.raises(EncryptionError):
            await Worker("orders", print, dsn=database, observers=()).work()
        assert handlers() == before

    asyncio.run(work())


def test_what_does_not_open_stands_in_nobodys_way_and_is_not_asked_for_without_a_pause(
    client: Client, database: str, sealing: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without any backoff the message comes back at once, again and again.
    client.queues.set_policy("orders", backoff_base=0, jitter=False, max_attempts=4)
    monkeypatch.setenv(KEYS_VARIABLE, f"theirs {OTHER}")
    with Client(database, encryption=Encryption.from_environment()) as stranger:
        closed = stranger.send("orders", 1)
    monkeypatch.setenv(KEYS_VARIABLE, f"ours {KEY}")
    bodies = Bodies()
    with working(database, bodies) as record:
        failed = record.wait(CallFailed, 4)
        with Client(database, encryption=sealing) as sender:
            good = sender.send("orders", 2)
        [settled] = record.wait(MessageSettled)
    assert all("theirs" in each.error and each.retry_in for each in failed)
    assert (settled.message_id, settled.outcome) == (good, "acked")
    assert bodies == [2]
    [letter] = client.dead_letters.list("orders")
    assert (letter.message_id, letter.attempts, letter.error_class) == (closed, 4, "DecryptionError")


@pytest.mark.unrecorded
def test_worker_refuses_and_trusts_what_its_environment_says(
    client: Client, database: str, sealing: Encryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queues.set_policy("orders", max_attempts=1)
    client.topics.bind("order.*", "orders")
    plain = client.send("orders", "plain")
    with Client(database, encryption=sealing) as sender:
        sender.topics.send("order.new", "for the topic")
    monkeypatch.setenv(ONLY_SEALED_VARIABLE, "true")
    monkeypatch.setenv(TRUSTED_VARIABLE, "topic order.*")
    bodies = Bodies()
    with working(database, bodies) as record:
        [settled] = record.wait(MessageSettled)
        wait_until(lambda: client.dead_letters.list("orders") != [])
    assert (settled.outcome, bodies) == ("acked", ["for the topic"])
    [letter] = client.dead_letters.list("orders")
    assert (letter.message_id, letter.error_class) == (plain, "DecryptionError")
