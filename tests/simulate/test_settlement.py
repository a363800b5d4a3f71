"""Acks in the background: gathered, and none left behind."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from spanmq import Client, Message
from spanmq.errors import SpanmqError
from spanmq.message import Settled
from spanmq.simulate import settlement
from spanmq.simulate.settlement import Settlement

WAIT_SECONDS = 30


@dataclass
class Told:
    """What a settlement says became of messages, a list a call."""

    calls: queue.Queue[list[int]] = field(default_factory=queue.Queue)

    def note(self, settled: Sequence[Settled]) -> None:
        assert {each.outcome for each in settled} == {"acked"}
        self.calls.put([each.message_id for each in settled])


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


def received(client: Client, count: int) -> list[Message]:
    client.send_batch("orders", range(count))
    return client.receive("orders", count)


def add(settled: Settlement, messages: list[Message]) -> None:
    for message in messages:
        settled.add("orders", message.lease_id or 0, message.message_id)


def test_acks_are_gathered_until_somebody_waits_for_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement, "GATHER_SECONDS", 3600.0)
    told = Told()
    settled = Settlement(client, told.note)
    messages = received(client, 3)
    add(settled, messages)
    with pytest.raises(queue.Empty):
        told.calls.get(timeout=0.2)
    settled.finish()
    assert told.calls.get_nowait() == [message.message_id for message in messages]
    assert told.calls.empty()
    assert client.metrics("orders").length == 0
    # And again: what was urgent is so no more.
    add(settled, received(client, 2))
    with pytest.raises(queue.Empty):
        told.calls.get(timeout=0.2)
    settled.close()
    assert client.metrics("orders").length == 0


def test_ack_that_nobody_waits_for_goes_by_itself(client: Client) -> None:
    told = Told()
    settled = Settlement(client, told.note)
    messages = received(client, 2)
    add(settled, messages)
    found: list[int] = []
    while len(found) < len(messages):
        found += told.calls.get(timeout=WAIT_SECONDS)
    assert found == [message.message_id for message in messages]
    settled.close()


def test_who_waits_for_an_ack_hears_that_it_failed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlement, "GATHER_SECONDS", 3600.0)
    settled = Settlement(client, Told().note)
    add(settled, received(client, 1))
    client.drop_queue("orders")
    with pytest.raises(SpanmqError):
        settled.finish()
