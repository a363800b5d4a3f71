"""A worker whose handlers fail for want of something: it stops receiving, tries, and goes on."""

from datetime import UTC, datetime

import psycopg
from tests.client.concurrency import until
from tests.worker.running import Record, Running, working

from spanmq import Client, Message, Worker
from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.event import BreakerClosed, BreakerOpened, BreakerTried, MessageHandled, MessageSettled


def test_breaker_stops_receiving_and_closes_after_a_good_trial(client: Client, database: str) -> None:
    client.send_batch("orders", range(40))
    is_down = True

    async def handle(message: Message) -> None:
        if is_down:
            raise ConnectionRefusedError

    policy = BreakerPolicy(window=5, pause=0.05, pause_max=0.1)
    with working(database, handle, concurrency=5, breaker=policy) as record:
        record.wait(BreakerOpened, 2)  # the first trial failed too
        failed = len(record.of(MessageHandled))
        tried = len(record.of(BreakerTried))
        assert failed <= 15 + tried, "messages went on failing while the breaker was open"
        is_down = False
        record.wait(BreakerClosed)
        with psycopg.connect(database, autocommit=True) as observer:
            until(observer, "select breaker_open_until is null from spanmq.count_messages()")
        record.wait(MessageSettled, where=lambda event: event.outcome == "acked")


def test_breaker_is_the_worker_s_own_and_the_other_goes_on(client: Client, database: str) -> None:
    """One machine of two has lost its way to the service: what it gives back, the other handles."""
    client.queues.set_policy("orders", backoff_base=0.01)

    async def cut_off(message: Message) -> None:
        raise ConnectionRefusedError("no route")

    async def well(message: Message) -> None: ...

    policy = BreakerPolicy(window=4, pause=600.0, pause_max=600.0)
    record = Record()
    broken = Running(
        Worker("orders", cut_off, dsn=database, observers=[record], concurrency=2, breaker=policy), record
    )
    sent = client.send_batch("orders", range(40))
    [opened] = record.wait(BreakerOpened)
    assert (opened.queue, opened.failures, opened.messages, opened.error) == ("orders", 4, 4, "no route")
    assert broken.worker.breakers() == {"orders": "open"}
    with psycopg.connect(database, autocommit=True) as observer:
        until(observer, "select breaker_open_until is not null from spanmq.count_messages()")
    for [shown] in (client.health.now(), client.inspect.count(["orders"]), client.health.latest()):
        assert shown.breaker_open_until is not None
        assert 0 < (shown.breaker_open_until - datetime.now(UTC)).total_seconds() <= 600 + 5
    with working(database, well, breaker=policy, poll_interval=0.05) as other:
        other.wait(MessageSettled, len(sent), where=lambda event: event.outcome == "acked")
        assert other.of(BreakerOpened) == []
    # It took no more than what its slots had when it opened.
    assert len(record.of(MessageHandled)) <= 4 + 2
    broken.stop()
    assert broken.worker.breakers() == {}
    assert client.queues.metrics("orders").length == 0


def test_breakers_are_told_for_each_queue(client: Client, database: str) -> None:
    client.queues.create("events")
    client.send_batch("orders", range(5))
    record = Record()

    async def handle(message: Message) -> None:
        if message.queue == "orders":
            raise ConnectionRefusedError

    policy = BreakerPolicy(window=5, pause=600.0, pause_max=600.0)
    worker = Worker(["orders", "events"], handle, dsn=database, observers=[record], breaker=policy)
    running = Running(worker, record)
    record.wait(BreakerOpened)
    assert worker.breakers() == {"orders": "open", "events": "closed"}
    client.send("events", 1)
    record.wait(MessageSettled, where=lambda event: event.queue == "events" and event.outcome == "acked")
    running.stop()


def test_message_that_can_not_be_decoded_is_no_trial(client: Client, database: str) -> None:
    is_down = True

    def decode(raw: bytes) -> str:
        if raw == b'"bad"':
            raise ValueError("bad")
        return raw.decode()

    async def handle(message: Message) -> None:
        if is_down:
            raise ConnectionRefusedError

    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    client.send_batch("orders", ["good", "bad", "bad"])
    policy = BreakerPolicy(window=1, pause=0.05)
    with working(database, handle, concurrency=1, breaker=policy, decoder=decode) as record:
        record.wait(MessageSettled, 2, where=lambda event: event.outcome == "dead")
        assert record.of(BreakerClosed) == []
        is_down = False
        client.send("orders", "good")
        record.wait(BreakerClosed)
        assert record.wait(MessageSettled, where=lambda event: event.outcome == "acked")[0].message_id == 4
