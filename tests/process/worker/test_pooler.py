"""Through PgBouncer in transaction mode, where it is installed."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from tests.cli.program import do
from tests.patience import WAIT_SECONDS, wait_until
from tests.process.pooler import pooler
from tests.worker.running import working

from spanmq import Client, Message
from spanmq.errors import ConnectionFailedError
from spanmq.worker.event import CallFailed, MessageSettled


@pytest.fixture
def pooled(database: str) -> Iterator[str]:
    """Return a DSN that leads to the same database through a pooler."""
    with pooler(database) as dsn:
        yield dsn


@pytest.mark.parametrize("takes_connection", [False, True])
def test_worker_works_through_a_pooler_in_transaction_mode(
    client: Client, database: str, pooled: str, takes_connection: bool
) -> None:
    client.queues.set_policy("orders", backoff_base=0.01)
    do(database, "create table shipped (number int)")

    async def alone(message: Message) -> None:
        if message.body == 3 and message.attempt == 1:
            raise TimeoutError

    async def together(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into shipped values (%s)", [message.body])
        await alone(message)

    client.send_batch("orders", range(200))
    handler = together if takes_connection else alone
    with working(pooled, handler, pooler=True, poll_interval=0.02, batch=8, concurrency=4) as record:
        record.wait(MessageSettled, 201)
        client.send("orders", 200)
        record.wait(MessageSettled, 201, where=lambda event: event.outcome == "acked")
    outcomes = [event.outcome for event in record.of(MessageSettled)]
    assert sorted(outcomes) == ["acked"] * 201 + ["retrying"]
    assert record.of(CallFailed) == []
    if takes_connection:
        with psycopg.connect(database) as connection:
            rows = connection.execute("select number from shipped order by 1").fetchall()
        assert rows == [(number,) for number in range(201)]


def test_statement_through_a_pooler_is_waited_for(pooled: str, observer: psycopg.Connection[Any]) -> None:
    lock = "select pg_advisory_xact_lock(44)"
    asked = (
        "select count(*) from pg_stat_activity where query like '%%pg_stat_get_activity(null)%%'"
        " and pid <> pg_backend_pid() and query_start > %s"
    )

    def has_asked() -> bool:
        return observer.execute(asked, [since]).fetchone() != (0,)

    with Client(pooled, pooler=True) as client, ThreadPoolExecutor() as threads:
        observer.execute("select pg_advisory_lock(44)")

        def wait() -> None:
            with client.transaction() as transaction:
                transaction.connection.execute(lock)

        done = threads.submit(wait)
        # A client that took the pooler's session for the server's would not ask a third time.
        for _ in range(3):
            [since] = observer.execute("select clock_timestamp()").fetchone() or []
            wait_until(lambda: done.done() or has_asked())
        observer.execute("select pg_advisory_unlock(44)")
        done.result(WAIT_SECONDS)


def test_client_that_does_not_know_of_the_pooler_is_told_so(client: Client, pooled: str) -> None:
    with pytest.raises(ConnectionFailedError) as raised, Client(pooled) as direct:
        direct.send("orders", 1)
    assert "pooler=True" in (raised.value.hint or "")
