"""When outcomes are settled: with the rest of their lease, or at once where something depends on them."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.patience import WAIT_SECONDS
from tests.worker.running import Record, working

from spanmq import Client, Message
from spanmq.worker.event import MessageSettled

# Of quick messages a worker receives several in advance after some dozen.
COUNT = 200
LAST = 150
# Nothing in a test waits for as long, nor for a twentieth of such a lease.
LONG: dict[str, float] = {"gather": 30_000.0, "lease": 30_000.0, "lease_max": 30_000.0}


@contextmanager
def held_up_at(database: str, last: int) -> Iterator[Record]:
    """Have a worker with one slot handle messages up to this one, whose handler ends with the block."""
    is_over = threading.Event()

    async def handle(message: Message) -> None:
        if message.body == last:
            await asyncio.to_thread(is_over.wait, WAIT_SECONDS)
        elif message.body % 10 == 9:
            raise ValueError(str(message.body))

    with working(database, handle, concurrency=1, **LONG) as record:
        try:
            yield record
        finally:
            is_over.set()


@pytest.mark.parametrize("is_async", [True, False])
def test_outcome_is_settled_soon_when_its_slot_is_idle(client: Client, database: str, is_async: bool) -> None:
    client.send_batch("orders", ["slow", "quick"])
    is_over = threading.Event()

    def handle(message: Message) -> None:
        if message.body == "slow":
            is_over.wait(WAIT_SECONDS)

    async def handle_async(message: Message) -> None:
        await asyncio.to_thread(handle, message)

    handler = handle_async if is_async else handle
    with working(database, handler, concurrency=2, **LONG) as record:
        [quick] = record.wait(MessageSettled)
        assert not is_over.is_set()
        is_over.set()
        record.wait(MessageSettled, 2)
    assert quick.outcome == "acked"


def test_failure_is_settled_soon_although_other_messages_wait(client: Client, database: str) -> None:
    client.queues.set_policy("orders", backoff_base=3600, jitter=False)
    client.send_batch("orders", range(COUNT))
    with held_up_at(database, LAST) as record:
        # And with it what was handled before it.
        record.wait(MessageSettled, LAST // 10, where=lambda event: event.outcome == "retrying")


def test_message_of_a_group_is_settled_soon_although_others_wait(client: Client, database: str) -> None:
    # In the order of their ids: one that is held up comes last.
    client.queues.set_policy("orders", ordered=True, fill_groups=True)
    client.send_batch("orders", [0] * LAST + [1], group=[str(number) for number in range(LAST + 1)])
    with held_up_at(database, 1) as record:
        record.wait(MessageSettled, LAST)


def test_stop_settles_what_was_gathered(client: Client, database: str) -> None:
    client.send_batch("orders", [0] * LAST + [1] + [0] * LAST)
    with held_up_at(database, 1) as record:
        record.wait(MessageSettled, LAST // 2)
    settled = record.of(MessageSettled, lambda event: event.outcome == "acked")
    assert len(settled) + client.queues.metrics("orders").length == 2 * LAST + 1
    assert client.inspect.failures("orders", settled[0].message_id) == []
