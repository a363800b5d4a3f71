"""A worker whose handlers fail for want of something: it stops receiving, tries, and goes on."""

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from tests.client.concurrency import until
from tests.worker.running import Record, Running, working

from spanmq import Client, Message, Reject, RetryIn
from spanmq.tasks import Tasks
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import (
    BreakerClosed,
    BreakerOpened,
    BreakerTried,
    MessageHandled,
    MessageSettled,
    MessagesReceived,
)

Observer = psycopg.Connection[Any]
IS_OPEN = "select breaker_open_until is not null from spanmq.count_messages()"
IS_CLOSED = "select breaker_open_until is null from spanmq.count_messages()"


async def refused(message: Message) -> None:
    raise ConnectionRefusedError("all is down")


class Dependency:
    """A handler that needs something, which is down until it is said to be up."""

    is_down = True

    async def __call__(self, message: Message) -> None:
        if self.is_down:
            await refused(message)


def acked(record: Record, count: int) -> dict[int, int]:
    """Wait until so many messages are acked; return their attempts by id."""
    return {event.message_id: event.attempt for event in record.settled("acked", count)}


@pytest.mark.parametrize("every", [30, 10, 3])
def test_minority_that_always_fails_holds_up_no_other(client: Client, database: str, every: int) -> None:
    # They come back all the time, before all others.
    client.queues.set_policy("orders", backoff_base=0.001, backoff_factor=1, max_attempts=0)
    sent = client.send_batch("orders", range(900))
    healthy = {each for each in sent if each % every}

    async def handle(message: Message) -> None:
        if message.message_id % every == 0:
            raise ConnectionRefusedError("the host of customer 7 is down")

    with working(database, handle) as record:
        assert acked(record, len(healthy)) == dict.fromkeys(healthy, 1)
        first = [event.message_id for event in record.of(MessageHandled) if event.attempt == 1]
        # In their turn: none waited until those that fail had ended.
        assert all(abs(place - number) <= 250 for number, place in enumerate(first, 1)), "out of turn"
        assert record.of(BreakerTried) == []
        assert record.of(BreakerOpened) == []


def test_block_of_messages_that_fail_does_not_stop_those_behind_it(client: Client, database: str) -> None:
    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    client.send_batch("orders", [{"customer": 7}] * 400)
    client.send_batch("orders", [{"customer": 8}] * 100)

    async def handle(message: Message) -> None:
        if message.body["customer"] == 7:
            raise ConnectionRefusedError("customer 7")

    policy = BreakerPolicy(pause=600.0)
    with working(database, handle, breaker=policy) as record:
        assert set(acked(record, 100)) == set(range(401, 501))
        record.settled("retrying", 400)
        assert record.of(BreakerTried)
        assert record.of(BreakerOpened) == []


def test_task_that_always_fails_does_not_stop_the_other_tasks_of_its_queue(
    client: Client, database: str
) -> None:
    tasks = Tasks("orders", dsn=database)

    @tasks.task
    async def charge(number: int) -> None:
        raise ConnectionRefusedError("payments")

    @tasks.task
    async def mail(number: int) -> None: ...

    for number in range(300):
        (mail if number % 5 < 2 else charge).send(number)
    record = Record()
    running = Running(tasks.worker(observers=[record]), record)
    assert set(acked(record, 120).values()) == {1}
    assert record.of(BreakerOpened) == []
    running.stop()


def test_several_workers_open_close_and_lose_nothing(
    client: Client, database: str, observer: Observer
) -> None:
    client.queues.set_policy("orders", backoff_base=0.01, max_attempts=0)
    sent = client.send_batch("orders", range(300))
    handle, policy = Dependency(), BreakerPolicy(failures=20, pause=0.05)
    with ExitStack() as stack:
        records = [stack.enter_context(working(database, handle, breaker=policy)) for _ in range(3)]
        for record in records:
            record.wait(BreakerOpened)
        handle.is_down = False
        until(observer, "select queue_length = 0 from pgmq.metrics('orders')")
    settled = [event for record in records for event in record.of(MessageSettled)]
    assert sorted(event.message_id for event in settled if event.outcome == "acked") == sent


def test_breaker_stops_receiving_and_closes_after_a_good_trial(
    client: Client, database: str, observer: Observer
) -> None:
    client.send_batch("orders", range(200))
    handle, policy = Dependency(), BreakerPolicy(failures=5, tries=3, pause=0.05)
    with working(database, handle, concurrency=5, breaker=policy) as record:
        record.wait(BreakerOpened, 2)  # the first trial after the pause failed too
        failed = len(record.of(MessageHandled))
        tried = len(record.of(BreakerTried))
        assert failed <= 10 + 3 * tried, "messages went on failing while the breaker was open"
        assert {event.attempt for event in record.of(MessageHandled)} == {1}, "one failed twice"
        handle.is_down = False
        record.wait(BreakerClosed)
        until(observer, IS_CLOSED)
        record.settled("acked")


def test_trial_of_retries_alone_takes_one_and_new_messages_come_first(client: Client, database: str) -> None:
    client.queues.set_policy("orders", backoff_base=0, jitter=False, max_attempts=0)
    client.send_batch("orders", range(5))
    is_old_down = True

    async def handle(message: Message) -> None:
        if is_old_down and message.body != "new":
            raise ConnectionRefusedError

    policy = BreakerPolicy(failures=5, tries=5, pause=0.05)
    with working(database, handle, breaker=policy) as record:
        record.wait(BreakerOpened, 3)
        trials = record.events[record.events.index(record.of(BreakerOpened)[0]) :]
        assert {event.count for event in trials if isinstance(event, MessagesReceived)} == {1}
        new = client.send("orders", "new")
        assert set(acked(record, 1)) == {new}
        is_old_down = False
        acked(record, 6)


def test_breaker_is_the_worker_s_own_and_the_other_goes_on(
    client: Client, database: str, observer: Observer
) -> None:
    """One machine of two has lost its way to the service: what it gives back, the other handles."""
    client.queues.set_policy("orders", backoff_base=0.01)

    async def well(message: Message) -> None: ...

    policy = BreakerPolicy(failures=4, tries=1, pause=600.0)
    with working(database, refused, concurrency=2, breaker=policy) as record:
        sent = client.send_batch("orders", range(40))
        [opened] = record.wait(BreakerOpened)
        assert (opened.queue, opened.error) == ("orders", "all is down")
        assert 5 <= opened.failures <= 7
        assert record.running.worker.breakers() == {"orders": "open"}
        until(observer, IS_OPEN)
        for [shown] in (client.health.now(), client.inspect.count(["orders"]), client.health.latest()):
            assert shown.breaker_open_until is not None
            assert 0 < (shown.breaker_open_until - datetime.now(UTC)).total_seconds() <= 600
        assert client.health.latest()[0].breaker_error == "all is down"
        assert client.health.workers()[0].breaker_error == "all is down"
        with working(database, well, breaker=policy, poll_interval=0.05) as other:
            other.settled("acked", len(sent))
            assert other.of(BreakerOpened) == []
        # It took no more than what its slots had when it opened, and the trial.
        assert len(record.of(MessageHandled)) <= 4 + 2 + 1
    assert record.running.worker.breakers() == {}
    assert client.queues.metrics("orders").length == 0
    assert client.health.latest()[0].breaker_open_until is None


def test_reason_is_that_of_a_failure_that_counted(client: Client, database: str) -> None:
    async def handle(message: Message) -> None:
        if message.body == "again":
            raise RetryIn(600, "card 4111-0627 has expired", category="TRANSIENT")
        raise ConnectionRefusedError("payments are down")

    policy = BreakerPolicy(failures=6, tries=1, pause=600.0)
    client.queues.set_policy("orders", backoff_base=0, jitter=False, max_attempts=0)
    client.send_batch("orders", range(10))
    with working(database, handle, concurrency=1, breaker=policy) as record:
        [opened] = record.wait(BreakerOpened)
    assert opened.error == "payments are down"


@pytest.mark.parametrize("error", [KeyError("address"), TimeoutError(), Reject("declined")], ids=repr)
def test_failures_of_other_categories_do_not_open_it(client: Client, database: str, error: Exception) -> None:
    async def handle(message: Message) -> None:
        raise error

    client.send_batch("orders", range(100))
    policy = BreakerPolicy(failures=5, pause=600.0)
    with working(database, handle, breaker=policy) as record:
        record.wait(MessageSettled, 100, where=lambda event: event.attempt == 1)
        assert record.of(BreakerTried) == []


def test_message_that_is_rejected_shows_that_the_dependency_answers(client: Client, database: str) -> None:
    is_down = True

    async def handle(message: Message) -> None:
        raise ConnectionRefusedError if is_down else Reject("declined")

    client.send_batch("orders", range(40))
    policy = BreakerPolicy(failures=5, tries=1, pause=0.05)
    with working(database, handle, breaker=policy) as record:
        record.wait(BreakerOpened)
        is_down = False
        record.wait(BreakerClosed)


def test_time_outs_beside_refused_connections_do_not_hide_that_all_is_down(
    client: Client, database: str
) -> None:
    async def handle(message: Message) -> None:
        raise TimeoutError if message.message_id % 2 else ConnectionRefusedError("no route")

    client.send_batch("orders", range(40))
    policy = BreakerPolicy(failures=5, tries=2, pause=600.0)
    with working(database, handle, breaker=policy) as record:
        assert record.wait(BreakerOpened)[0].error == "no route"


def test_command_closes_the_breaker_of_a_running_worker(
    client: Client, database: str, observer: Observer
) -> None:
    client.queues.set_policy("orders", backoff_base=0)
    client.send_batch("orders", range(20))
    handle, policy = Dependency(), BreakerPolicy(failures=5, tries=1, pause=600.0)
    with working(database, handle, breaker=policy) as record:
        record.wait(BreakerOpened)
        until(observer, IS_OPEN)
        handle.is_down = False
        assert client.queues.close_breaker("orders") == 1
        assert client.queues.close_breaker("orders") == 0
        assert client.health.latest()[0].breaker_open_until is None
        record.wait(BreakerClosed)
        assert len(acked(record, 20)) == 20


def test_breaker_that_was_closed_opens_again_when_all_fails(
    client: Client, database: str, observer: Observer
) -> None:
    client.send_batch("orders", range(40))
    policy = BreakerPolicy(failures=5, tries=1, pause=600.0)
    with working(database, refused, breaker=policy, concurrency=2) as record:
        for number in range(1, 4):
            record.wait(BreakerOpened, number)
            until(observer, IS_OPEN)
            assert client.queues.close_breaker("orders") == 1
            record.wait(BreakerClosed, number)


def test_worker_without_a_breaker_goes_on(client: Client, database: str) -> None:
    client.send_batch("orders", range(200))
    with working(database, refused, breaker=None) as record:
        record.wait(MessageSettled, 200, where=lambda event: event.attempt == 1)
        assert record.of(BreakerTried) == []


def test_breakers_are_told_for_each_queue(client: Client, database: str) -> None:
    client.queues.create("events")
    client.send_batch("orders", range(7))

    async def handle(message: Message) -> None:
        if message.queue == "orders":
            raise ConnectionRefusedError

    policy = BreakerPolicy(failures=5, tries=1, pause=600.0)
    with working(database, handle, queues=["orders", "events"], breaker=policy) as record:
        record.wait(BreakerOpened)
        assert record.running.worker.breakers() == {"orders": "open", "events": "closed"}
        client.send("events", 1)
        assert record.settled("acked")[0].queue == "events"


def test_message_that_can_not_be_decoded_is_no_trial(client: Client, database: str) -> None:
    def decode(raw: bytes) -> str:
        if raw == b'"bad"':
            raise ValueError("bad")
        return raw.decode()

    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    client.send("orders", "good")
    handle, policy = Dependency(), BreakerPolicy(failures=1, tries=1, pause=0.05)
    with working(database, handle, concurrency=1, breaker=policy, decoder=decode) as record:
        record.wait(BreakerTried)
        client.send_batch("orders", ["bad", "bad"])
        record.settled("dead", 2)
        assert record.of(BreakerClosed) == []
        handle.is_down = False
        client.send("orders", "good")
        record.wait(BreakerClosed)
        assert record.settled("acked")[0].message_id == 4
