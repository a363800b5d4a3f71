"""A worker at an ordered queue."""

import asyncio
from collections import Counter

import pytest
from tests.worker.running import working

from spanmq import Client, Message
from spanmq.worker import RetryIn
from spanmq.worker.event import MessageHandled, MessageSettled


def test_ordered_queue_is_handled_in_order_through_a_failure(client: Client, database: str) -> None:
    client.queues.set_policy("orders", ordered=True, backoff_base=0.01, jitter=False)
    client.send_batch("orders", [[group, n] for n in range(8) for group in "abc"], group=list("abc") * 8)
    handled: dict[str, list[int]] = {"a": [], "b": [], "c": []}

    async def handle(message: Message) -> None:
        group, number = message.body
        await asyncio.sleep(0.001)
        if number == 3 and message.attempt < 3:
            raise RetryIn(0.01)
        handled[group].append(number)

    with working(database, handle, concurrency=8) as record:
        record.wait(MessageSettled, 24, where=lambda event: event.outcome == "acked")
    assert handled == {group: list(range(8)) for group in "abc"}


def test_what_is_behind_a_failed_message_is_released(client: Client, database: str) -> None:
    client.queues.set_policy("orders", ordered=True)
    client.send_batch("orders", [*range(40)], group=["a"] * 40)

    async def handle(message: Message) -> None:
        if message.attempt == 1:
            raise RetryIn(0)

    with working(database, handle, concurrency=40) as record:
        record.wait(MessageSettled, 40, where=lambda event: event.outcome == "acked")
    outcomes = Counter(event.outcome for event in record.of(MessageSettled))
    assert outcomes.pop("released") > 0
    assert outcomes == {"acked": 40, "retrying": 40}


@pytest.mark.parametrize("in_batches", [True, False])
def test_what_is_behind_a_message_that_can_not_be_decoded_is_released(
    client: Client, database: str, in_batches: bool
) -> None:
    client.queues.set_policy("orders", ordered=True)
    client.send_batch("orders", [1, 2, 3, 4, 5, 6], group=["a", "a", "a", "b", "a", None])

    def decode(raw: bytes) -> int:
        if raw == b"2":
            raise ValueError("not two")
        return int(raw)

    with working(
        database, lambda messages: None, concurrency=6, decoder=decode, in_batches=in_batches
    ) as record:
        record.wait(MessageSettled, 5, where=lambda event: event.outcome == "acked")
    outcomes = Counter((event.message_id, event.outcome) for event in record.of(MessageSettled))
    acked = [(number, "acked") for number in (1, 3, 4, 5, 6)]
    assert outcomes == Counter([*acked, (2, "dead"), (3, "released"), (5, "released")])
    # No handler got the one that is dead.
    assert sorted(event.message_id for event in record.of(MessageHandled)) == [1, 3, 4, 5, 6]
