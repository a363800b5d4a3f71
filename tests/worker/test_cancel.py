"""Cancelled messages: their handlers end, and they are not tried again."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic

import pytest
from tests.patience import WAIT_SECONDS, wait_until
from tests.worker.running import Gate, working

import spanmq
from spanmq import Client, Message
from spanmq.errors import HandlerCancelledError
from spanmq.worker.event import LeaseExtended, MessageHandled, MessageSettled, MessagesReceived

pytestmark = pytest.mark.unrecorded


def is_of(message_id: int) -> Callable[[MessageSettled], bool]:
    return lambda event: event.message_id == message_id


def cancelled_of(client: Client, message_id: int) -> str:
    [settled] = client.cancel("orders", message_id)
    return settled.outcome


@pytest.mark.parametrize("concurrency", [1, 10])
def test_async_handler_of_a_cancelled_message_is_cancelled_at_once(
    client: Client, database: str, concurrency: int
) -> None:
    [first] = client.send_batch("orders", ["first"])
    begun = threading.Event()
    seconds: list[float] = []

    async def handle(message: Message) -> None:
        if message.body == "first":
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                seconds.append(monotonic())

    # A lease of an hour: the notification does it.
    with working(database, handle, lease=3_600, concurrency=concurrency) as record:
        assert begun.wait(WAIT_SECONDS)
        asked_at = monotonic()
        assert cancelled_of(client, first) == "cancelling"
        assert record.wait(MessageSettled, where=is_of(first))[0].outcome == "cancelled"
        # 0.2 s on a machine that has nothing else to do.
        assert seconds[0] - asked_at < 0.2 + WAIT_SECONDS / 10
        client.send("orders", "second")
        record.settled("acked")
    assert client.inspect.state("orders", first) == "cancelled"
    assert record.of(MessageHandled, lambda event: event.message_id == first) == []


def test_plain_handler_asks_and_its_next_call_of_the_client_ends_it(client: Client, database: str) -> None:
    [first] = client.send_batch("orders", ["first"])
    begun = threading.Event()
    errors: list[BaseException] = []

    def handle(message: Message) -> None:
        begun.set()
        wait_until(spanmq.cancelled)
        try:
            client.send("orders", "never")
        except HandlerCancelledError as error:
            errors.append(error)
            raise

    with working(database, handle, lease=3_600) as record:
        assert begun.wait(WAIT_SECONDS)
        assert not spanmq.cancelled()
        client.cancel("orders", first)
        assert record.outcomes(1) == ["cancelled"]
    assert len(errors) == 1
    assert client.queues.metrics("orders").length == 0


@pytest.mark.usefixtures("early_extensions")
def test_handler_that_no_notification_reaches_ends_at_the_next_extension(
    client: Client, database: str
) -> None:
    first, gate = client.send("orders", "first"), Gate()
    with working(database, gate.coroutine, lease=30.0, pooler=True) as record:
        gate.wait_for("first")
        client.cancel("orders", first)
        record.wait(LeaseExtended)
        assert record.outcomes(1) == ["cancelled"]


@pytest.mark.usefixtures("early_extensions")
def test_deleted_message_ends_its_handler(client: Client, database: str) -> None:
    (first, second), gate = client.send_batch("orders", ["first", "second"]), Gate()
    with working(database, gate.coroutine, lease=30.0) as record:
        gate.wait_for("first", "second")
        client.delete("orders", first)
        assert record.wait(MessageSettled, where=is_of(first))[0].outcome == "cancelled"
        client.cancel("orders", second)
        assert record.wait(MessageSettled, where=is_of(second))[0].outcome == "cancelled"


def test_message_that_was_taken_is_found_by_a_search_for_cancelled_ones_and_is_stale(
    client: Client, database: str
) -> None:
    (first, second), gate = client.send_batch("orders", ["first", "second"]), Gate()
    with working(database, gate.coroutine, lease=3_600, concurrency=2) as record:
        gate.wait_for("first", "second")
        client.set_vt("orders", first, 600)
        client.cancel("orders", second)
        assert record.wait(MessageSettled, where=is_of(second))[0].outcome == "cancelled"
        assert record.wait(MessageSettled, where=is_of(first))[0].outcome == "stale"


def test_group_waits_until_the_handler_of_a_cancelled_message_has_ended(
    client: Client, database: str
) -> None:
    client.queues.set_policy("orders", ordered=True)
    first, _ = client.send_batch("orders", ["first", "second"], group="a")
    begun, told, end = threading.Event(), threading.Event(), threading.Event()
    running: list[str] = []
    beside: list[list[str]] = []

    async def handle(message: Message) -> None:
        running.append(message.body)
        beside.append([*running])
        if message.body == "first":
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                told.set()
                await asyncio.to_thread(end.wait, WAIT_SECONDS)
                running.remove("first")

    with working(database, handle, lease=3_600) as one, working(database, handle, lease=3_600) as two:
        assert begun.wait(WAIT_SECONDS)
        client.cancel("orders", first)
        assert told.wait(WAIT_SECONDS)
        assert client.receive("orders") == []
        end.set()
        wait_until(lambda: sum(len(record.of(MessageSettled)) for record in (one, two)) == 2)
    assert beside == [["first"], ["second"]]
    settled = [event.outcome for record in (one, two) for event in record.of(MessageSettled)]
    assert sorted(settled) == ["acked", "cancelled"]


def test_handler_that_ends_all_the_same_has_its_ack(client: Client, database: str) -> None:
    [first] = client.send_batch("orders", ["first"])
    begun = threading.Event()

    async def handle(message: Message) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with working(database, handle, lease=3_600) as record:
        assert begun.wait(WAIT_SECONDS)
        client.cancel("orders", first)
        assert record.outcomes(1) == ["acked"]
    assert client.inspect.state("orders", first) == "completed"


def test_message_that_no_handler_has_begun_is_cancelled_without_one(client: Client, database: str) -> None:
    (first, second), gate = client.send_batch("orders", ["first", "second"]), Gate()
    gate.open("second")
    # Batches of two for one slot, once handlers are known to be fast.
    with working(database, gate, lease=3_600, concurrency=1, in_batches=False) as record:
        record.wait(MessagesReceived)
        gate.wait_for("first")
        outcome = cancelled_of(client, second)
        assert outcome in ("cancelled", "cancelling")
        gate.open("first")
        record.wait(MessageSettled, where=is_of(first))
    assert "second" not in gate.begun or outcome == "cancelling"
