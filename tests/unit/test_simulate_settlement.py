"""Acks in the background: gathered, and none left behind."""

import queue
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.patience import WAIT_SECONDS

from spanmq import Client, Message
from spanmq.errors import SpanmqError
from spanmq.simulate import settlement
from spanmq.simulate.settlement import Settlement


@dataclass
class Told:
    """What a settlement says became of messages, a list a call and outcome."""

    calls: queue.Queue[tuple[str, list[int]]] = field(default_factory=queue.Queue)

    def note(self, outcome: str, numbers: Sequence[int]) -> None:
        self.calls.put((outcome, list(numbers)))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gather until somebody is in a hurry."""
    monkeypatch.setattr(settlement, "GATHER_SECONDS", 3600.0)


def received(client: Client, count: int, queue: str = "orders") -> list[Message]:
    client.send_batch(queue, range(count))
    return client.receive(queue, count)


def add(settled: Settlement, messages: list[Message], first: int) -> None:
    """Add messages that the run numbers from `first`."""
    for number, message in enumerate(messages, start=first):
        settled.add(message, number)


def test_ack_that_nobody_waits_for_goes_by_itself(client: Client) -> None:
    told = Told()
    settled = Settlement(client, told.note)
    add(settled, received(client, 2), 1)
    found: list[int] = []
    while len(found) < 2:
        found += told.calls.get(timeout=WAIT_SECONDS)[1]
    assert found == [1, 2]
    settled.close()


@pytest.mark.usefixtures("patient")
def test_messages_of_several_queues_and_leases_are_told_by_their_numbers(client: Client) -> None:
    client.queues.create("events")
    told = Told()
    settled = Settlement(client, told.note)
    # Each queue numbers its messages from 1.
    add(settled, received(client, 2), 7)
    add(settled, received(client, 2, "events"), 3)
    stale = received(client, 1)
    client.delete("orders", stale[0].message_id)
    add(settled, stale, 5)
    settled.finish()
    calls = [told.calls.get_nowait() for _ in range(3)]
    assert calls == [("acked", [7, 8]), ("acked", [3, 4]), ("stale", [5])]
    settled.close()


@pytest.mark.usefixtures("patient")
def test_who_waits_for_an_ack_hears_that_it_failed(client: Client) -> None:
    settled = Settlement(client, Told().note)
    messages = received(client, 2)
    add(settled, messages[:1], 1)
    client.queues.drop("orders")
    with pytest.raises(SpanmqError):
        settled.finish()
    with pytest.raises(SpanmqError):  # also who doesn't wait, with the next one
        add(settled, messages[1:], 2)
