"""Leases of a worker: their length, their extensions, and their loss."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS, wait_until
from tests.worker.running import Gate, waiting_for_a_lock, working

import spanmq
from spanmq import Client, Message
from spanmq.worker.event import LeaseExtended, LeaseLost, MessagesReceived


@pytest.mark.usefixtures("early_extensions")
def test_lease_is_extended_as_long_as_the_handler_works(client: Client, database: str) -> None:
    client.send("orders", 1)
    gate = Gate()
    with working(database, gate, lease=30.0) as record:
        gate.wait_for(1)
        for _ in range(2):
            [before] = client.peek("orders")
            wait_until(lambda: client.peek("orders")[0].leased_until > before.leased_until)  # noqa: B023
        assert client.receive("orders") == []
        gate.open(1)
        assert record.outcomes(1) == ["acked"]
    assert record.of(LeaseExtended)


@pytest.mark.usefixtures("early_extensions")
def test_lease_is_extended_while_the_extension_of_another_waits(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    client.queues.create("events")
    client.send("events", 1)
    client.send("orders", 1)
    gate, waiting = Gate(), waiting_for_a_lock("extend")
    with (
        psycopg.connect(database) as other,
        working(database, gate, queues=["orders", "events"], lease=30.0, timeouts=None) as record,
    ):
        record.wait(MessagesReceived, 2)
        assert other.execute("select pgmq.delete('events', 1)").fetchone() == (True,)
        wait_until(lambda: observer.execute(waiting).fetchone() is not None)
        extended = len(record.of(LeaseExtended))
        record.wait(LeaseExtended, extended + 3)
        assert {event.queue for event in record.of(LeaseExtended)[extended:]} == {"orders"}
        other.rollback()
        gate.open(1)
        assert record.outcomes(2) == ["acked", "acked"]


@pytest.mark.usefixtures("early_extensions")
def test_lease_is_the_policy_of_the_queue_and_is_extended_by_it(client: Client, database: str) -> None:
    client.queues.create("events")
    client.queues.set_policy("orders", lease=30)
    client.queues.set_policy("events", lease=80_000)
    done, begun = threading.Event(), threading.Barrier(2, timeout=WAIT_SECONDS)
    seconds: dict[str, float] = {}

    def handle(message: Message) -> None:
        assert message.last_read_at is not None
        seconds[message.queue] = (message.leased_until - message.last_read_at).total_seconds()
        if message.queue == "events":
            begun.wait()
        done.wait(WAIT_SECONDS)

    with working(database, handle, queues=["orders", "events"], lease_max=100_000.0) as record:
        # The long one comes first: the short one must not wait for its time, more than a minute.
        client.send("events", 1)
        begun.wait()
        client.send("orders", 1)
        extended = record.wait(LeaseExtended, 6)
        assert {(event.queue, event.seconds) for event in extended} == {("orders", 30.0)}
        done.set()
        assert record.outcomes(2) == ["acked", "acked"]
    assert seconds == {"orders": 30.0, "events": 80_000.0}
    assert record.of(LeaseLost) == []


def test_policy_that_changes_holds_from_the_next_lease_on(client: Client, database: str) -> None:
    seconds: list[float] = []

    def handle(message: Message) -> None:
        assert message.last_read_at is not None
        seconds.append((message.leased_until - message.last_read_at).total_seconds())

    with working(database, handle) as record:
        client.send("orders", 1)
        record.outcomes(1)
        client.queues.set_policy("orders", lease=7)
        # The receive that gives the second one may have begun before the policy changed.
        for n in (2, 3):
            client.send("orders", n)
            record.outcomes(n)
    assert (seconds[0], seconds[2]) == (30.0, 7.0)


@pytest.mark.usefixtures("early_extensions")
def test_lost_lease_is_noticed_and_its_ack_is_stale(client: Client, database: str) -> None:
    client.send_batch("orders", range(2))
    gate = Gate()
    with working(database, gate, concurrency=1, lease=30.0) as record:
        gate.wait_for(0)
        client.set_vt("orders", [1, 2], 0)  # somebody takes them out of the lease
        record.wait(LeaseLost)
        gate.open(0, 1)
        record.settled("stale")
        record.settled("acked", 2)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.usefixtures("early_extensions")
def test_handler_whose_lease_is_lost_is_cancelled_or_learns_it(
    client: Client, database: str, is_async: bool
) -> None:
    client.send("orders", 1)
    begun, cancelled = threading.Event(), threading.Event()

    # Of a message that had left the queue by then, the first would be told that it was cancelled: the second waits.
    def plain(message: Message) -> None:
        if message.attempt > 1:
            cancelled.wait(WAIT_SECONDS)
            return
        begun.set()
        wait_until(spanmq.cancelled)
        cancelled.set()

    async def asynchronous(message: Message) -> None:
        if message.attempt > 1:
            await asyncio.to_thread(cancelled.wait, WAIT_SECONDS)
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with working(database, asynchronous if is_async else plain, lease=30.0) as record:
        assert begun.wait(WAIT_SECONDS)
        client.set_vt("orders", 1, 0)
        # The next extension finds it, or the search with which listening begins.
        assert cancelled.wait(WAIT_SECONDS)
        record.settled("stale")
        record.settled("acked")
