"""Messages that fail again and again hold up no other: whatever the policy, the batches, the limits of the queue."""

import asyncio
from typing import Any

import pytest
from tests.worker.running import working
from tests.worker.test_open_breaker import acked

from spanmq import Client, Message
from spanmq.worker.event import BreakerOpened, MessageHandled

# They come back at once, before all others, without an end.
ENDLESS: dict[str, Any] = {"backoff_base": 0.001, "backoff_factor": 1, "max_attempts": 0}


def failed_before(client: Client, count: int) -> None:
    """Leave so many messages in front of all others that have failed and are due."""
    client.send_batch("orders", ["fails"] * count)
    while messages := client.receive("orders", 100):
        client.nack(messages, error="down", retry_in=600)
    client.set_vt("orders", list(range(1, count + 1)), 0)


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"max_in_flight": 8},
        {"rate_limit": 2000, "rate_burst": 20},
        {"max_in_flight_per_group": 2},
        {"ordered": True},
        {"ordered": True, "fill_groups": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("concurrency", [1, 10])
def test_one_of_ten_that_always_fails_holds_up_no_other(
    client: Client, database: str, policy: dict[str, Any], concurrency: int
) -> None:
    client.queues.set_policy("orders", **(ENDLESS | policy))
    for number in range(300):
        client.send("orders", number % 10, group=f"g{number % 10}")

    async def handle(message: Message) -> None:
        if message.body == 7:
            raise ConnectionRefusedError("the host of customer 7 is down")

    with working(database, handle, concurrency=concurrency) as record:
        found = acked(record, 270)
        assert set(found.values()) == {1}
        assert {(number - 1) % 10 for number in found} == {0, 1, 2, 3, 4, 5, 6, 8, 9}
        assert record.of(BreakerOpened) == []


def test_retries_take_half_of_the_slots_while_others_wait(client: Client, database: str) -> None:
    failed_before(client, 40)
    client.send_batch("orders", ["well"] * 30)
    never = asyncio.Event()
    running: set[int] = set()

    async def handle(message: Message) -> None:
        if message.body == "fails":
            running.add(message.message_id)
            await never.wait()

    with working(database, handle, concurrency=4, grace=0) as record:
        assert set(acked(record, 30)) == set(range(41, 71))
        assert len(running) <= 4
        first = [event.message_id for event in record.of(MessageHandled)]
        assert first == sorted(first)


@pytest.mark.unrecorded
def test_thousands_of_due_retries_in_front_leave_new_messages_their_turn(
    client: Client, database: str
) -> None:
    failed_before(client, 3000)
    client.send_batch("orders", ["well"] * 300)

    async def handle(message: Message) -> None:
        if message.body == "fails":
            raise ConnectionRefusedError

    with working(database, handle) as record:
        assert set(acked(record, 300)) == set(range(3001, 3301))
        before = sum(event.attempt > 1 for event in record.of(MessageHandled))
        # Half and half, but for a few claims that were under way.
        assert before < 1500
        assert record.of(BreakerOpened) == []


def test_message_that_fails_in_a_batch_takes_the_others_with_it_once(client: Client, database: str) -> None:
    client.queues.set_policy("orders", backoff_base=0.1, jitter=False)
    sent = client.send_batch("orders", range(400))
    bad = {number for number in sent if number % 10 == 0}
    sizes: list[int] = []

    async def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))
        if bad & {message.message_id for message in messages}:
            raise ConnectionRefusedError("the host of customer 7 is down")

    with working(database, handle, in_batches=True, batch=20, concurrency=4) as record:
        assert max(acked(record, 360).values()) == 2
        assert max(sizes) == 20
        assert record.of(BreakerOpened) == []
