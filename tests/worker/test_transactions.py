"""Handlers that take the connection: their writes and the ack are one transaction."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.worker.running import working

from spanmq import AsyncClient, Client, Message, Timeouts
from spanmq.worker.event import MessageSettled
from spanmq.worker.handler import look_at
from spanmq.worker.job import Job, Lease, Released, Verdict
from spanmq.worker.running.performing import Performer, UndoneError

INSERT = "insert into shipped (number, attempt) values (%s, %s)"


@pytest.fixture
def shipped(client: Client, database: str) -> Callable[[], list[Any]]:
    """A table for handlers to write to; gives what is in it."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table shipped (number int, attempt int)")

    def look() -> list[Any]:
        with psycopg.connect(database) as connection:
            return connection.execute("select number, attempt from shipped order by 1, 2").fetchall()

    return look


def handler_of(
    act: Callable[[Message, Any], None], *, is_async: bool, is_first: bool = False
) -> Callable[..., Any]:
    """Return a handler that writes, and acts after or before that."""

    def plain(message: Message, connection: psycopg.Connection[Any]) -> None:
        for step in (is_first, not is_first):
            if step:
                act(message, connection)
            else:
                connection.execute(INSERT, [message.body, message.attempt])

    async def asynchronous(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        for step in (is_first, not is_first):
            if step:
                act(message, connection)
            else:
                await connection.execute(INSERT, [message.body, message.attempt])

    return asynchronous if is_async else plain


@pytest.mark.parametrize("is_async", [True, False])
def test_writes_and_ack_commit_together_and_a_failure_undoes_the_writes(
    client: Client, database: str, shipped: Callable[[], list[Any]], is_async: bool
) -> None:
    def fail_once(message: Message, _: Any) -> None:
        if message.body == 3 and message.attempt == 1:
            raise TimeoutError("fails after its write")

    client.queues.set_policy("orders", backoff_base=0.01)
    client.send_batch("orders", range(20))
    with working(database, handler_of(fail_once, is_async=is_async), concurrency=4) as record:
        record.wait(MessageSettled, 20, where=lambda event: event.outcome == "acked")
    assert shipped() == [(number, 2 if number == 3 else 1) for number in range(20)]
    assert client.queues.metrics("orders").length == 0


def test_batch_handler_takes_a_connection_too(
    client: Client, database: str, shipped: Callable[[], list[Any]]
) -> None:
    client.send_batch("orders", range(20))

    def handle(messages: list[Message], connection: psycopg.Connection[Any]) -> None:
        connection.cursor().executemany(INSERT, [[each.body, each.attempt] for each in messages])

    with working(database, handle, in_batches=True, batch=8) as record:
        record.outcomes(20)
    assert shipped() == [(number, 1) for number in range(20)]


@pytest.mark.parametrize("is_async", [True, False])
def test_lease_that_was_lost_undoes_the_writes(
    client: Client, database: str, shipped: Callable[[], list[Any]], is_async: bool
) -> None:
    client.send("orders", 1)
    taken: list[Message] = []

    def take_it_away(*_: object) -> None:
        # At one instant: the worker would hear of a message that is visible again.
        with client.transaction() as ours:
            ours.set_vt("orders", 1, 0)
            taken.extend(ours.receive("orders", lease=600))

    with working(database, handler_of(take_it_away, is_async=is_async)) as record:
        assert record.outcomes(1) == ["stale"]
    assert shipped() == []
    assert [each.outcome for each in client.ack(taken)] == ["acked"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_handler_that_breaks_its_connection_fails_by_the_policy(
    client: Client, database: str, shipped: Callable[[], list[Any]], is_async: bool, is_first: bool
) -> None:
    client.queues.set_policy("orders", max_attempts=2, backoff_base=0.01)
    client.send("orders", 1)

    def terminate(_: Message, connection: Any) -> None:
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 10000)", [connection.info.backend_pid])

    with working(database, handler_of(terminate, is_async=is_async, is_first=is_first)) as record:
        assert record.outcomes(2) == ["retrying", "dead"]
    [dead] = client.dead_letters.list("orders")
    assert (dead.attempts, dead.category, shipped()) == (2, "DEPENDENCY", [])


class GivenSession:
    """The session of a worker whose connection is in a transaction that has failed: BEGIN is refused."""

    def __init__(self, plain: psycopg.Connection[Any], asynchronous: psycopg.AsyncConnection[Any]) -> None:
        self._plain = plain
        self._asynchronous = asynchronous

    def thread_client(self) -> Client:
        return Client(connection=self._plain)

    async def client(self) -> AsyncClient:
        return AsyncClient(connection=self._asynchronous)


def test_message_whose_handler_was_not_called_is_released_after_a_pause(
    client: Client, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanmq.worker.running.performing.UNBEGUN_SECONDS", 0.05)
    client.send("orders", 1)
    messages = client.receive("orders")

    async def verdicts() -> list[Verdict]:
        with psycopg.connect(database) as one:
            async with await psycopg.AsyncConnection.connect(database) as other:
                with pytest.raises(psycopg.errors.DivisionByZero):
                    one.execute("select 1 / 0")
                with pytest.raises(psycopg.errors.DivisionByZero):
                    await other.execute("select 1 / 0")
                session: Any = GivenSession(one, other)
                verdicts: list[Verdict] = []
                for is_async in (True, False):
                    handler = look_at(handler_of(print, is_async=is_async), takes_batches=False)
                    performer = Performer(handler, {"orders": session}, {})
                    job = Job(messages, Lease("orders", 1, [1], 0.0, 30.0), None)
                    with pytest.raises(UndoneError) as undone:
                        await performer.perform(job) if is_async else performer.call(job)
                    verdicts.append(performer.judge(undone.value, job))
                return verdicts

    began_at = monotonic()
    assert asyncio.run(verdicts()) == [Released(), Released()]
    # Without one the worker would receive and release it in a loop.
    assert monotonic() - began_at >= 0.1


@pytest.mark.parametrize("is_async", [True, False])
def test_handler_that_idled_in_its_transaction_fails_with_the_servers_reason(
    client: Client, database: str, shipped: Callable[[], list[Any]], is_async: bool
) -> None:
    def idle_once(message: Message, connection: Any) -> None:
        if message.attempt > 1:
            return
        gone = "select not exists (select from pg_stat_activity where pid = %s)"
        pid = connection.info.backend_pid
        with psycopg.connect(database, autocommit=True) as observer:
            wait_until(lambda: observer.execute(gone, [pid]).fetchone() == (True,))

    client.queues.set_policy("orders", backoff_base=0.01)
    client.send("orders", 1)
    # The first statement begins the transaction, in which the handler then idles.
    handler = handler_of(idle_once, is_async=is_async)
    with working(database, handler, timeouts=Timeouts(idle_in_transaction=0.2)) as record:
        assert record.outcomes(2) == ["retrying", "acked"]
    [failed] = [event for event in record.of(MessageSettled) if event.outcome == "retrying"]
    assert failed.category == "TRANSIENT"
    assert "25P03" in (failed.error or "")
    assert "nothing took effect" in (failed.error or "")
    [failure] = client.inspect.failures("orders", 1)
    assert failure.error == failed.error
    assert shipped() == [(1, 2)]
