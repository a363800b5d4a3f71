"""The pool of slots: which queue gets a free one, and how many messages are received for it."""

import threading
from collections import Counter

import pytest
from tests.patience import WAIT_SECONDS
from tests.worker.running import working

from spanmq import Client, Message
from spanmq.worker.receiving.pool import Pool
from spanmq.worker.setting import Settings

QUEUES = [f"q{number}" for number in range(10)]


def pool_of(queues: list[str], **settings: object) -> Pool:
    pool = Pool(Settings(**settings))  # type: ignore[arg-type]
    for queue in queues:
        pool.join(queue)
        pool.ready(queue)
    return pool


def take(pool: Pool, queue: str, quantity: int) -> None:
    pool.asked(queue, quantity)
    share = pool.join(queue)
    share.asked = 0
    share.held += quantity


def hold(pool: Pool, **held: int) -> None:
    for queue, messages in held.items():
        is_ready = pool.join(queue).is_ready
        pool.ready(queue)
        pool.join(queue).is_ready = is_ready
        pool.join(queue).held = messages


def handled(pool: Pool, seconds: float) -> None:
    """Let handlers of the queue `a` have taken so long."""
    for _ in range(200):
        pool.join("a").record(seconds)


def test_only_queues_that_may_have_a_message_get_slots() -> None:
    pool = pool_of(QUEUES, concurrency=10)
    assert pool.quantities() == dict.fromkeys(QUEUES, 1)
    for queue in QUEUES[1:]:
        pool.exhausted(queue)
    assert pool.quantities() == {"q0": 10}


def test_slots_go_by_weight_to_the_queue_with_the_fewest() -> None:
    pool = pool_of(["a", "b"], concurrency=8, weights={"a": 3})
    assert pool.quantities() == {"a": 6, "b": 2}
    hold(pool, a=7)
    assert pool.quantities() == {"b": 1}


def test_single_slot_goes_round_by_weight() -> None:
    pool = pool_of(["a", "b", "c"], concurrency=1, weights={"a": 2})
    turns: Counter[str] = Counter()
    for _ in range(40):
        [(queue, quantity)] = pool.quantities().items()
        assert quantity == 1
        turns[queue] += 1
        take(pool, queue, 1)
        hold(pool, **{queue: 0})
    assert turns == {"a": 20, "b": 10, "c": 10}


def test_queue_that_was_empty_does_not_catch_up() -> None:
    pool = pool_of(["a", "b"], concurrency=1)
    pool.exhausted("b")
    for _ in range(100):
        take(pool, "a", 1)
        hold(pool, a=0)
    pool.ready("b")
    turns = []
    for _ in range(6):
        [queue] = pool.quantities()
        turns.append(queue)
        take(pool, queue, 1)
        hold(pool, **{queue: 0})
    assert sorted(turns) == ["a"] * 3 + ["b"] * 3


def test_limit_is_a_ceiling_and_a_guarantee_is_left_to_its_queue() -> None:
    pool = pool_of(["a", "b", "c"], concurrency=10, limits={"b": 2}, guaranteed={"c": 3})
    pool.exhausted("c")
    assert pool.quantities() == {"a": 5, "b": 2}
    hold(pool, a=5, b=2)
    assert pool.quantities() == {}
    pool.ready("c")
    assert pool.quantities() == {"c": 3}
    hold(pool, c=3)
    assert pool.quantities() == {}


def test_parked_messages_occupy_no_slots_but_are_bounded() -> None:
    pool = pool_of(["a", "b"], concurrency=10)
    hold(pool, a=10)
    pool.join("a").parked = 9
    pool.ready("b")
    assert pool.quantities() == {"b": 9}


def test_slow_handlers_get_one_message_each_and_fast_ones_a_batch() -> None:
    pool = pool_of(["a"], concurrency=4, batch=100)
    assert pool.quantities() == {"a": 4}
    handled(pool, 0.00001)
    assert pool.quantities() == {"a": 100}
    # All handlers have something to do: wait until half of it is gone.
    hold(pool, a=60)
    assert pool.quantities() == {}
    hold(pool, a=50)
    assert pool.quantities() == {"a": 50}
    handled(pool, 1.0)
    for held, quantity in ((0, 4), (3, 1)):
        hold(pool, a=held)
        assert pool.quantities() == {"a": quantity}
    hold(pool, a=4)
    assert pool.quantities() == {}


def test_single_slot_is_refilled_while_half_of_its_messages_are_left() -> None:
    pool = pool_of(["a"], concurrency=1, batch=100)
    handled(pool, 0.001)
    hold(pool, a=51)
    assert pool.quantities() == {}
    hold(pool, a=40)
    assert pool.quantities() == {"a": 59}
    pool.join("a").retries = 40
    assert pool.quantities() == {}  # they may be slow


def test_single_slot_is_refilled_only_as_long_as_no_other_queue_waits_for_it() -> None:
    pool = pool_of(["a", "b"], concurrency=1, batch=100)
    handled(pool, 0.001)
    hold(pool, a=40)
    assert pool.quantities() == {}
    pool.exhausted("b")
    assert pool.quantities() == {"a": 59}


def test_batches_are_received_when_the_last_one_is_handled() -> None:
    pool = pool_of(["a"], concurrency=1, batch=100, in_batches=True)
    hold(pool, a=40)
    assert pool.quantities() == {}


def test_free_slot_is_filled_at_once() -> None:
    pool = pool_of(["a"], concurrency=10, batch=100)
    handled(pool, 0.02)
    hold(pool, a=9)
    assert pool.quantities()["a"] >= 20
    hold(pool, a=30)
    assert pool.quantities() == {}


def test_stopped_queue_and_open_breaker_get_nothing() -> None:
    pool = pool_of(["a", "b", "c"], concurrency=4)
    pool.leave("a")
    pool.join("b").at_most = 1
    assert pool.quantities() == {"b": 1, "c": 3}
    pool.join("a")
    assert set(pool.quantities()) == {"a", "b", "c"}


@pytest.mark.parametrize("full", [1, 2])
def test_full_queues_get_all_slots(client: Client, database: str, full: int) -> None:
    for queue in QUEUES:
        client.queues.create(queue)
    slots = threading.Barrier(10)
    for queue in QUEUES[:full]:
        client.send_batch(queue, range(20 // full))

    def handle(message: Message) -> None:
        # Passes when ten handlers run at once.
        slots.wait(WAIT_SECONDS)

    with working(database, handle, queues=QUEUES, concurrency=10) as record:
        assert record.outcomes(20) == ["acked"] * 20


def test_queue_whose_slots_are_taken_gets_the_next_one(client: Client, database: str) -> None:
    client.queues.create("mail")
    client.send_batch("orders", range(6))
    begun, go = threading.Semaphore(0), threading.Semaphore(0)
    order: list[str] = []

    def handle(message: Message) -> None:
        order.append(message.queue)
        begun.release()
        assert go.acquire(timeout=WAIT_SECONDS)

    with working(database, handle, queues=["orders", "mail"], concurrency=2) as record:
        for _ in range(2):
            assert begun.acquire(timeout=WAIT_SECONDS)
        client.send("mail", 1)
        # Both become free and are taken: one of them, at the latest, by the mail.
        go.release(2)
        for _ in range(2):
            assert begun.acquire(timeout=WAIT_SECONDS)
        go.release(10)
        assert record.outcomes(7) == ["acked"] * 7
    assert "mail" in order
