"""Messages that a worker handles alone: what it finishes, releases and begins before, and what it does after."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.worker.running import Gate, Record, working

from spanmq import Client, Message
from spanmq.worker.event import (
    HandlerOverran,
    LeaseLost,
    MessageHandled,
    MessageSettled,
    MessagesReceived,
)
from spanmq.worker.handler import look_at

pytestmark = pytest.mark.unrecorded

Rows = list[tuple[Any, ...]]


@pytest.fixture
def suspect(client: Client, observer: psycopg.Connection[Any]) -> Callable[..., int]:
    """Send messages of two attempts whose first lease was lost, before a worker sees them; return the first id."""
    client.queues.set_policy("orders", max_attempts=2)

    def send(*bodies: Any, queue: str = "orders") -> int:
        with observer.transaction():
            for body in bodies:
                observer.execute("select pgmq.send(%s, to_jsonb(%s::text))", [queue, body])
            lost = observer.execute("select msg_id from spanmq.receive(%s, %s, -1)", [queue, len(bodies)])
            ids = [row[0] for row in lost]
        assert len(ids) == len(bodies)
        return int(ids[0])

    return send


def state(observer: psycopg.Connection[Any]) -> Rows:
    return observer.execute(
        "select msg_id, attempts, lost, alone, lease_id <> 0 from spanmq_core.unsettled order by 1"
    ).fetchall()


@contextmanager
def gated(database: str, **settings: Any) -> Iterator[tuple[Gate, Record]]:
    gate = Gate()
    with working(database, gate, poll_interval=0.05, gather=0.0, **settings) as record:
        yield gate, record


def test_it_begins_when_all_handlers_have_ended(
    client: Client, database: str, suspect: Callable[..., int]
) -> None:
    client.send_batch("orders", ["first", "second"])
    with gated(database, concurrency=4) as (gate, record):
        gate.wait_for("first", "second")
        message_id = suspect("suspect")
        record.wait(MessagesReceived, 2)
        client.send("orders", "later")
        gate.open("first")
        record.wait(MessageSettled)
        assert gate.begun == ["first", "second"] or gate.begun == ["second", "first"]
        gate.open("second")
        gate.wait_for("suspect")
        assert client.inspect.state("orders", message_id) == "processing"
        assert len(gate.begun) == 3, "nothing beside it"
        gate.open("suspect", "later")
        record.wait(MessageSettled, 4)
    assert gate.begun[2:] == ["suspect", "later"]


def test_what_no_handler_has_begun_is_released(
    client: Client, database: str, observer: psycopg.Connection[Any], suspect: Callable[..., int]
) -> None:
    # Of one group, so one after the other.
    client.queues.set_policy("orders", max_attempts=2, ordered=True)
    ids = client.send_batch("orders", ["a", "b", "c"], group="blue")
    client.queues.create("others")
    client.queues.set_policy("others", max_attempts=2)
    with gated(database, concurrency=3, queues=["orders", "others"]) as (gate, record):
        gate.wait_for("a")
        suspect("suspect", queue="others")
        assert record.settled("released")[0].message_id == ids[1]
        assert gate.begun == ["a"]
        gate.open("a")
        gate.wait_for("suspect")
        given_back = [row[1:] for row in state(observer) if row[0] == ids[1]]
        assert given_back == [(0, 0, 0, False)], "its delivery does not count"
        gate.open("suspect", "b", "c")
        record.settled("acked", 4)
    assert gate.begun == ["a", "suspect", "b", "c"]


def test_second_one_of_another_queue_waits_for_the_first(
    client: Client, database: str, suspect: Callable[..., int]
) -> None:
    client.queues.create("others")
    client.queues.set_policy("others", max_attempts=2)
    suspect("one")
    suspect("two", queue="others")
    with gated(database, concurrency=2, queues=["orders", "others"]) as (gate, record):
        wait_until(lambda: len(gate.begun) == 1)
        first = gate.begun[0]
        gate.open(first)
        record.wait(MessageSettled)
        gate.wait_for("one", "two")
        gate.open("one", "two")
        record.wait(MessageSettled, 2)
        handled = record.wait(MessageHandled, 2)
    assert [event.attempt for event in handled] == [2, 2]


def test_worker_that_stops_gives_it_back_as_it_was(
    client: Client, database: str, observer: psycopg.Connection[Any], suspect: Callable[..., int]
) -> None:
    client.send("orders", "first")
    with gated(database, concurrency=2) as (gate, record):
        gate.wait_for("first")
        message_id = suspect("suspect")
        record.wait(MessagesReceived, 2)
        record.running.worker.stop()
        record.settled("released")
        gate.open("first")
    assert gate.begun == ["first"]
    assert state(observer) == [(message_id, 1, 1, 1, False)]


def test_handler_that_overran_does_not_hold_it_up(
    client: Client, database: str, suspect: Callable[..., int]
) -> None:
    client.send("orders", "slow")
    gate = Gate()
    is_over = False
    handler = replace(
        look_at(gate, takes_batches=False),
        timeout_of=lambda message: 0.01 if is_over and message.body == "slow" else None,
    )
    with working(database, handler, poll_interval=0.05, gather=0.0, concurrency=2) as record:
        gate.wait_for("slow")
        message_id = suspect("suspect")
        is_over = True
        record.wait(HandlerOverran)
        gate.wait_for("suspect")
        gate.open("slow", "suspect")
        [settled] = record.wait(MessageSettled, where=lambda event: event.message_id == message_id)
        assert settled.outcome == "acked"


def test_body_that_cannot_be_decoded_is_rejected_without_a_handler(
    client: Client, database: str, suspect: Callable[..., int]
) -> None:
    def refuse(raw: bytes) -> Any:
        raise ValueError(raw)

    message_id = suspect("suspect")
    with gated(database, decoder=refuse) as (gate, record):
        [event] = record.wait(MessageSettled)
    assert (event.message_id, event.outcome, event.attempt) == (message_id, "dead", 2)
    assert gate.begun == []


@pytest.mark.usefixtures("early_extensions")
def test_it_is_dropped_if_its_lease_is_lost_meanwhile(
    client: Client, database: str, observer: psycopg.Connection[Any], suspect: Callable[..., int]
) -> None:
    client.send("orders", "first")
    with gated(database, concurrency=2, lease=30.0) as (gate, record):
        gate.wait_for("first")
        message_id = suspect("suspect")
        record.wait(MessagesReceived, 2)
        observer.execute("select pgmq.delete('orders', %s::bigint)", [message_id])
        record.wait(LeaseLost)
        gate.open("first")
        record.wait(MessageSettled, 2)
        client.send("orders", "later")
        gate.wait_for("later")
        gate.open("later")
    assert gate.begun == ["first", "later"]


def test_batches_get_it_as_a_batch_of_one(client: Client, database: str, suspect: Callable[..., int]) -> None:
    batches: list[list[Any]] = []

    def handle(messages: list[Message]) -> None:
        batches.append([message.body for message in messages])

    suspect("one", "two")
    with working(database, handle, in_batches=True, poll_interval=0.05) as record:
        record.wait(MessageSettled, 2)
    assert batches == [["one"], ["two"]]
