"""A worker at work on a real queue."""

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS, wait_until
from tests.worker.running import Gate, waiting_for_a_lock, working

from spanmq import Client, Message, Reject, Worker
from spanmq.errors import ConnectionFailedError, HandlerStuckError, QueueNotFoundError
from spanmq.model import PolicyChange
from spanmq.worker.event import (
    CallFailed,
    Event,
    HandlerOverran,
    MessageHandled,
    MessageSettled,
    MessagesReceived,
    SettlingStarted,
    WorkerStopped,
)
from spanmq.worker.handler import look_at

# What failed does not come again within the test.
LATER: PolicyChange = {"backoff_base": 600, "jitter": False}


@pytest.mark.parametrize("is_async", [True, False])
def test_every_message_is_handled_once_and_acked(client: Client, database: str, is_async: bool) -> None:
    sent = client.send_batch("orders", range(500))
    seen: list[int] = []

    def plain(message: Message) -> None:
        seen.append(message.body)

    async def asynchronous(message: Message) -> None:
        seen.append(message.body)

    with working(database, asynchronous if is_async else plain) as record:
        assert record.outcomes(500) == ["acked"] * 500
    assert sorted(seen) == list(range(500))
    assert sorted(event.message_id for event in record.settled("acked", 500)) == sent
    assert client.queues.metrics("orders").length == 0
    assert record.of(WorkerStopped)[0].settled == 500


def test_batch_handler_gets_lists_and_they_are_acked_together(client: Client, database: str) -> None:
    client.send_batch("orders", range(100))
    sizes: list[int] = []

    async def handle(messages: list[Message]) -> None:
        sizes.append(len(messages))

    with working(database, handle, in_batches=True, batch=20, concurrency=2) as record:
        assert record.outcomes(100) == ["acked"] * 100
    assert max(sizes) <= 20
    assert sum(sizes) == 100


def test_no_more_handlers_run_than_there_are_slots(client: Client, database: str) -> None:
    client.send_batch("orders", range(12))
    running, most = 0, 0
    all_busy = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running >= 3:
            all_busy.set()
        await all_busy.wait()
        await asyncio.sleep(0.005)
        running -= 1

    with working(database, handle, concurrency=3) as record:
        record.outcomes(12)
    assert most == 3


def test_verdicts_of_a_lease_go_in_one_call(client: Client, database: str) -> None:
    client.send_batch("orders", range(100))

    async def handle(message: Message) -> None: ...

    # The last verdict of a lease ends the wait; nobody would wait for so long.
    with working(database, handle, concurrency=1, gather=600.0) as record:
        record.outcomes(100)
    assert [event.count for event in record.of(SettlingStarted)] == [
        event.count for event in record.of(MessagesReceived)
    ]


def test_failure_is_recorded_with_its_circumstances(client: Client, database: str) -> None:
    (message_id,) = client.send_batch("orders", [1])
    client.queues.set_policy("orders", **LATER)

    def fail(message: Message) -> None:
        raise ConnectionRefusedError("nobody there")

    with working(database, fail, name="worker-7") as record:
        (event,) = record.wait(MessageSettled)
    assert (event.outcome, event.category, event.error) == ("retrying", "DEPENDENCY", "nobody there")
    assert (event.error_class, "in fail" in str(event.traceback)) == ("ConnectionRefusedError", True)
    (failure,) = client.inspect.failures("orders", message_id)
    assert (failure.attempt, failure.category, failure.error) == (1, "DEPENDENCY", "nobody there")
    assert (failure.error_class, failure.worker) == ("ConnectionRefusedError", "worker-7")
    assert "in fail" in str(failure.traceback)


def test_reject_and_permanent_failures_are_dead_at_once(client: Client, database: str) -> None:
    client.send_batch("orders", ["reject", "permanent"])

    def handle(message: Message) -> None:
        if message.body == "reject":
            raise Reject("no such customer")
        raise ZeroDivisionError

    with working(database, handle, categories={ArithmeticError: "PERMANENT"}) as record:
        assert record.outcomes(2) == ["dead", "dead"]
    assert {event.category for event in record.of(MessageSettled)} == {"BUSINESS", "PERMANENT"}
    assert client.queues.metrics("orders").length == 0


@pytest.mark.parametrize("is_async", [True, False])
def test_handler_that_ends_the_program_only_fails(client: Client, database: str, is_async: bool) -> None:
    client.send("orders", 1)
    client.queues.set_policy("orders", **LATER)

    def plain(message: Message) -> None:
        raise SystemExit(3)

    async def asynchronous(message: Message) -> None:
        raise KeyboardInterrupt

    with working(database, asynchronous if is_async else plain) as record:
        assert record.outcomes(1) == ["retrying"]


def test_plain_handler_that_gives_a_coroutine_fails(client: Client, database: str) -> None:
    client.send("orders", 1)
    client.queues.set_policy("orders", **LATER)

    async def late() -> None: ...

    with working(database, lambda message: late()) as record:
        (event,) = record.wait(MessageSettled)
    assert event.outcome == "retrying"
    assert "async def" in str(event.error)


def test_body_that_can_not_be_decoded_is_dead_and_stops_nobody(client: Client, database: str) -> None:
    client.send_batch("orders", [1, 2, 3])

    def decode(raw: bytes) -> int:
        if raw == b"2":
            raise ValueError("not two")
        return int(raw)

    with working(database, lambda message: None, decoder=decode) as record:
        assert sorted(record.outcomes(3)) == ["acked", "acked", "dead"]
    (event,) = record.of(MessageSettled, lambda event: event.outcome == "dead")
    assert (event.category, event.error) == ("PERMANENT", "the body cannot be decoded: not two")


@pytest.mark.parametrize("kind", ["async", "plain", "plain, with a connection"])
def test_handler_that_takes_too_long_is_nacked_and_its_slot_works_on(
    client: Client, database: str, kind: str
) -> None:
    client.send_batch("orders", ["slow", "quick"])
    client.queues.set_policy("orders", **LATER)
    end = threading.Event()
    cancelled = threading.Event()

    def plain(message: Message) -> None:
        if message.body == "slow":
            end.wait(WAIT_SECONDS)

    def with_connection(message: Message, connection: psycopg.Connection[Any]) -> None:
        plain(message)

    async def asynchronous(message: Message) -> None:
        if message.body == "slow":
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    handlers: dict[str, Callable[..., Any]] = {"async": asynchronous, "plain": plain}
    # Only the slow one has a limit: that of a task.
    handler = replace(
        look_at(handlers.get(kind, with_connection), takes_batches=False),
        timeout_of=lambda message: 0.01 if message.body == "slow" else None,
    )
    with working(database, handler, concurrency=1) as record:
        (overran,) = record.wait(HandlerOverran)
        outcomes = {event.message_id: event.outcome for event in record.wait(MessageSettled, 2)}
        assert outcomes[overran.message_id] == "retrying"
        assert sorted(outcomes.values()) == ["acked", "retrying"]
        if kind == "async":
            assert cancelled.wait(WAIT_SECONDS)
        end.set()


def test_worker_whose_handlers_are_all_stuck_gives_up(client: Client, database: str) -> None:
    client.send_batch("orders", range(10))
    gate = Gate()
    with (
        pytest.raises(HandlerStuckError, match="overran"),
        working(database, gate, concurrency=1, handler_timeout=0.05, grace=0) as record,
    ):
        record.running.join()
    gate.open(*range(10))
    assert client.queues.metrics("orders").length == 10


def test_ack_whose_connection_was_lost_is_repeated_and_tells_that_its_outcome_is_unknown(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    client.send("orders", 1)
    gate, waiting = Gate(), waiting_for_a_lock("ack")
    # Without a time limit: an ack that ends by one is not lost.
    with psycopg.connect(database) as other, working(database, gate, timeouts=None) as record:
        record.wait(MessagesReceived)
        assert other.execute("select pgmq.delete('orders', 1)").fetchone() == (True,)
        gate.open(1)
        wait_until(lambda: observer.execute(waiting).fetchone() is not None)
        observer.execute(f"select pg_terminate_backend(pid) from ({waiting}) acks")
        # What was deleted meanwhile is stale for the second call; the first one may have been it.
        other.commit()
        record.settled("unknown")


# The first call for a message fails.
FIRST_ACK_FAILS = """
create sequence public.acks;
alter function spanmq.ack rename to ack_before;
create function spanmq.ack(queue text, lease_id bigint, msg_ids bigint[])
returns table (msg_id bigint, outcome text) language plpgsql as $$ begin
    if exists (select from spanmq_core.unsettled u where u.lease_id = $2) and nextval('public.acks') = 1 then
        raise 'not now' using errcode = '{sqlstate}';
    end if;
    return query select * from spanmq.ack_before($1, $2, $3);
end $$"""


@pytest.mark.parametrize(
    ("sqlstate", "is_told"),
    [
        ("40P01", False),  # the victim of a deadlock: the client repeats its call at once
        ("25006", False),  # the server was read-only: the client repeats its call on a new connection at once
        ("53100", True),  # its disk is full
    ],
)
def test_ack_that_fails_for_a_moment_is_repeated(
    client: Client, database: str, observer: psycopg.Connection[Any], sqlstate: str, is_told: bool
) -> None:
    client.send("orders", 1)
    observer.execute(FIRST_ACK_FAILS.format(sqlstate=sqlstate).encode())
    with working(database, lambda message: None) as record:
        assert record.outcomes(1) == ["acked"]
    assert observer.execute("select last_value from public.acks").fetchone() == (2,)
    failures = record.of(CallFailed)
    assert len(failures) == is_told
    assert all(failed.error.startswith("not now") and failed.retry_in for failed in failures)
    assert client.queues.metrics("orders").length == 0


def test_worker_refuses_to_start_without_a_queue_or_a_server(client: Client, database: str) -> None:
    for dsn, queue, error in (
        (database, "no_such_queue", QueueNotFoundError),
        ("host=/no/such/folder", "orders", ConnectionFailedError),
    ):
        with pytest.raises(error):
            asyncio.run(Worker(queue, print, dsn=dsn, observers=()).work(signals=False))


def test_worker_refuses_to_start_when_the_server_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"host=127.0.0.1 port={silent.getsockname()[1]} connect_timeout=2"
        worker = Worker("orders", print, dsn=dsn, observers=())
        with pytest.raises(ConnectionFailedError, match="timeout expired"):
            asyncio.run(worker.work(signals=False))


def test_worker_gives_back_what_nobody_began_without_counting_it(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if its handler had been quick so far, so that it takes many ahead.
    monkeypatch.setattr("spanmq.worker.receiving.pool.Share.per_slot", 30)
    sent = client.send_batch("orders", range(30))
    gate = Gate()
    with working(database, gate, concurrency=1) as record:
        gate.wait_for(0)
        record.running.worker.stop()
        record.settled("released", 29)
        gate.open(0)
    assert len(record.settled("acked")) == 1
    again = client.receive("orders", 30)
    assert [message.attempt for message in again] == [1] * 29
    assert {message.message_id for message in again} < set(sent)


def test_worker_that_can_not_wait_for_a_handler_gives_its_message_back(client: Client, database: str) -> None:
    client.send("orders", 1)
    gate = Gate()
    with working(database, gate, grace=0.05) as record:
        gate.wait_for(1)
    gate.open(1)
    assert [event.message_id for event in record.settled("released")] == [1]
    assert [message.attempt for message in client.receive("orders")] == [1]


def test_sessions_of_the_worker_have_their_time_limits(client: Client, database: str) -> None:
    client.send("orders", 1)
    found: list[Any] = []

    async def handle(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        cursor = await connection.execute(
            "select current_setting('lock_timeout'), current_setting('statement_timeout'),"
            " current_setting('idle_in_transaction_session_timeout')"
        )
        found.append(await cursor.fetchone())

    with working(database, handle) as record:
        record.outcomes(1)
    assert found == [("5s", "30s", "1min")]


def test_observer_sees_a_message_through(client: Client, database: str) -> None:
    client.send("orders", 1)
    with working(database, lambda message: None) as record:
        record.outcomes(1)
    kinds: list[type[Event]] = [MessagesReceived, MessageHandled, SettlingStarted, MessageSettled]
    assert [type(event) for event in record.events if type(event) in kinds] == kinds
