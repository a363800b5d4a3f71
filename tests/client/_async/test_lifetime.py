"""Clients that outlive what they stand on: a transaction, the server's presence; and durable claims."""

from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool
from tests.client.concurrency import AsyncTasks, away, until_async
from tests.patience import WAIT_SECONDS, wait_until

from spanmq.client import AsyncClient
from spanmq.client._async.pool import AsyncConnector
from spanmq.client.concurrency import in_thread
from spanmq.client.dsn import Timeouts
from spanmq.client.outage import Outage
from spanmq.errors import NotPossibleError


async def test_client_of_a_transaction_ends_with_it(client: AsyncClient) -> None:
    async with client.transaction() as transaction:
        await transaction.send("orders", 1)
    async with client.transaction():
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: transaction.send("orders", 2),
            lambda: transaction.send_batch("orders", range(2_500)),
            lambda: transaction.receive("orders"),
            transaction.admin.flavour,
            lambda: transaction.transaction().__aenter__(),
        ]
        for call in calls:
            with pytest.raises(NotPossibleError, match="the transaction of this client has ended"):
                await call()
        with pytest.raises(NotPossibleError, match="the transaction of this client has ended"):
            _ = transaction.connection
    assert (await client.queues.metrics("orders")).length == 1


async def test_server_that_was_away_for_long_is_found_by_a_waiting_call(
    database: str,
    spanmq_server: str,
    client: AsyncClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await client.close()
    async with AsyncClient(database, pool_size=1, timeout=WAIT_SECONDS) as patient, AsyncTasks() as tasks:
        async with patient.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
        with away(spanmq_server, database, pid):
            waiting = tasks.start(patient.queues.metrics, "orders")
            # Its pool gives up, and more than once.
            given_up = "reconnection attempt in pool 'spanmq' failed"
            await in_thread(lambda: wait_until(lambda: caplog.text.count(given_up) >= 2))
        assert (await waiting()).length == 0


async def test_pool_pauses_by_the_length_of_the_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    pauses: list[float] = []

    async def check(pool: AsyncConnectionPool[Any]) -> None:
        pauses.append(pool.reconnect_timeout)

    monkeypatch.setattr("spanmq.client._async.pool.Outage", lambda: Outage(lambda: now, max))
    monkeypatch.setattr("psycopg_pool.AsyncConnectionPool.check", check)
    connector = AsyncConnector("host=/no/such/folder", password=None, pooler=False, answer_seconds=None)
    pool = connector.new_pool(1, None)
    for seconds in (0, 1, 20, 100):
        now = seconds
        await connector._try_again(pool)
    # The first attempt has been made: the first pause follows it.
    assert pauses == [0.5, 0.5, 2.0, 5.0]
    connection: Any = None
    await connector._configure(None, connection)
    assert pool.reconnect_timeout == 0.5


@pytest.mark.parametrize("durable", [False, True])
async def test_claim_does_not_wait_for_the_disk_unless_told_to(
    database: str, client: AsyncClient, observer: psycopg.Connection[Any], durable: bool
) -> None:
    # What was committed is on disk as soon as the commit returns only if it waited.
    observer.execute(f"alter database {observer.info.dbname} set synchronous_commit = on")
    observer.execute(
        "create function seen() returns trigger language plpgsql as $$ begin "
        "insert into public.settings values (current_setting('synchronous_commit')); return null; end $$"
    )
    observer.execute("create table settings (value text)")
    observer.execute(
        "create trigger seen after update or insert on spanmq_core.state execute function seen()"
    )
    async with AsyncClient(database, durable_claims=durable, pool_size=1) as claimer:
        await claimer.send("orders", 1)
        observer.execute("truncate settings")
        [message] = await claimer.receive("orders")
        claimed = observer.execute("select distinct value from settings").fetchall()
        async with claimer.transaction() as transaction:
            await transaction.receive("orders")
            within = await (await transaction.connection.execute("show synchronous_commit")).fetchone()
        assert claimed == [("on" if durable else "off",)]
        assert within == ("on",)
        assert (await claimer.ack(message))[0].outcome == "acked"


async def test_listening_session_has_the_limits_of_the_others(
    database: str, client: AsyncClient, observer: psycopg.Connection[Any]
) -> None:
    observer.execute("create table listened (lock_timeout text)")
    observer.execute("alter function spanmq.await_messages rename to await_messages_before")
    observer.execute(
        "create function spanmq.await_messages(queues text[], listener uuid, has_channel boolean)"
        " returns table (queue text, queue_id int, is_ordered boolean, channel text)"
        " language plpgsql as $$ begin"
        " insert into public.listened values (current_setting('lock_timeout'));"
        " return query select * from spanmq.await_messages_before(queues, listener, has_channel); end $$"
    )
    async with AsyncClient(database, timeouts=Timeouts(lock=7)) as waiting, AsyncTasks() as tasks:
        received = tasks.start(waiting.receive, "orders", wait=WAIT_SECONDS)
        await until_async(observer, "select exists (select from listened)")
        await client.send("orders", 1)
        assert len(await received()) == 1
    assert observer.execute("select distinct lock_timeout from listened").fetchall() == [("7s",)]
