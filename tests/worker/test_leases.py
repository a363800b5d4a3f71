"""Leases of a worker: their length, their extensions, and their loss."""

import asyncio
import threading
from datetime import datetime

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS
from tests.worker.running import waiting_for_a_lock, working

from spanmq import Client, Message
from spanmq.worker.event import (
    LeaseExtended,
    LeaseLost,
    MessageSettled,
    MessagesReceived,
)


@pytest.mark.usefixtures("early_extensions")
def test_lease_is_extended_as_long_as_the_handler_works(client: Client, database: str) -> None:
    client.send("orders", 1)
    begun, done = threading.Event(), threading.Event()
    until: list[datetime] = []

    def handle(message: Message) -> None:
        until.append(message.leased_until)
        begun.set()
        done.wait(WAIT_SECONDS)

    def is_longer() -> bool:
        [message] = client.peek("orders")
        return message.leased_until > until[-1]

    with working(database, handle, lease=30.0) as record:
        assert begun.wait(WAIT_SECONDS)
        for _ in range(2):
            wait_until(is_longer)
            until += [message.leased_until for message in client.peek("orders")]
        assert client.receive("orders") == []
        done.set()
        assert record.outcomes(1) == ["acked"]
    assert record.of(LeaseExtended)


@pytest.mark.usefixtures("early_extensions")
def test_lease_is_extended_while_the_extension_of_another_waits(client: Client, database: str) -> None:
    client.queues.create("events")
    client.send("events", 1)
    client.send("orders", 1)
    done = threading.Event()
    waiting = waiting_for_a_lock("hold")
    with (
        psycopg.connect(database, autocommit=True) as observer,
        psycopg.connect(database) as other,
        working(
            database,
            lambda message: done.wait(WAIT_SECONDS),
            queues=["orders", "events"],
            lease=30.0,
            timeouts=None,
        ) as record,
    ):
        record.wait(MessagesReceived, 2)
        assert other.execute("select pgmq.delete('events', 1)").fetchone() == (True,)
        wait_until(lambda: observer.execute(waiting).fetchone() is not None)
        extended = len(record.of(LeaseExtended))
        record.wait(LeaseExtended, extended + 3)
        assert {event.queue for event in record.of(LeaseExtended)[extended:]} == {"orders"}
        other.rollback()
        done.set()
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
    begun, end = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        begun.set()
        end.wait(WAIT_SECONDS)

    with working(database, handle, concurrency=1, lease=30.0) as record:
        assert begun.wait(WAIT_SECONDS)
        client.set_vt("orders", [1, 2], 0)  # somebody takes them out of the lease
        record.wait(LeaseLost)
        end.set()
        record.wait(MessageSettled, where=lambda event: event.outcome == "stale")
        record.wait(MessageSettled, 2, where=lambda event: event.outcome == "acked")


@pytest.mark.usefixtures("early_extensions")
def test_async_handler_whose_lease_is_lost_is_cancelled(client: Client, database: str) -> None:
    client.send("orders", 1)
    begun, cancelled = threading.Event(), threading.Event()

    async def handle(message: Message) -> None:
        if message.attempt > 1:
            # Of a message that had left the queue by then, the first would be told that it was cancelled.
            await asyncio.to_thread(cancelled.wait, WAIT_SECONDS)
            return
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with working(database, handle, lease=30.0) as record:
        assert begun.wait(WAIT_SECONDS)
        client.set_vt("orders", 1, 0)
        # The next extension finds it, or the search with which listening begins.
        assert cancelled.wait(WAIT_SECONDS)
        record.wait(MessageSettled, where=lambda event: event.outcome == "stale")
        record.wait(MessageSettled, where=lambda event: event.outcome == "acked")
