"""Servers that turn read-only, fall silent or end a session, and databases with another isolation level."""

import os
import signal
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.client.concurrency import AsyncTasks, until_async

from spanmq import errors
from spanmq.client import AsyncClient
from spanmq.client.dsn import Timeouts

pytestmark = pytest.mark.reused

Connection = psycopg.Connection[Any]
READ_ONLY = "set default_transaction_read_only = on"
PID = "select pg_backend_pid()"


async def own(client: AsyncClient, statement: str) -> Any:
    """Run a statement on a connection of the client's pool; return its first value, if it has one."""
    async with client.transaction() as transaction:
        cursor = await transaction.connection.execute(statement)
        return (await cursor.fetchone())[0] if cursor.description else None


# Read-only.


async def test_call_on_a_server_that_turned_read_only_moves_to_a_new_connection(client: AsyncClient) -> None:
    before = await own(client, PID)
    await own(client, READ_ONLY)
    await client.send("orders", 1)
    assert await own(client, PID) != before
    assert [message.body for message in await client.peek("orders")] == [1]


async def test_one_read_only_answer_replaces_all_connections(client: AsyncClient) -> None:
    async with client.transaction() as first, client.transaction() as second:
        before = {each.connection.info.backend_pid for each in (first, second)}
        for each in (first, second):
            await each.connection.execute(READ_ONLY)
    await client.send("orders", 1)
    async with client.transaction() as first, client.transaction() as second:
        for each in (first, second):
            assert each.connection.info.backend_pid not in before
            await each.send("orders", 2)


async def test_connections_are_kept_if_the_dsn_accepts_a_server_that_is_read_only(database: str) -> None:
    async with AsyncClient(make_conninfo(database, target_session_attrs="any")) as client:
        before = await own(client, PID)
        await own(client, READ_ONLY)
        with pytest.raises(errors.ServerReadOnlyError):
            await client.admin.maintain()
        with pytest.raises(errors.ServerReadOnlyError):
            await client.admin.check_writable()
        assert await own(client, PID) == before


async def test_transaction_on_a_read_only_server_fails_and_the_next_one_moves(client: AsyncClient) -> None:
    await own(client, READ_ONLY)
    with pytest.raises(errors.ServerReadOnlyError, match="names all servers"):
        async with client.transaction() as transaction:
            await transaction.send("orders", 1)
    async with client.transaction() as transaction:
        await transaction.send("orders", 2)
    assert [message.body for message in await client.peek("orders")] == [2]


async def test_read_only_transaction_of_the_caller_keeps_the_connection(client: AsyncClient) -> None:
    async def send_read_only() -> None:
        async with client.transaction() as transaction:
            await transaction.connection.execute("set transaction read only")
            await transaction.send("orders", 1)

    before = await own(client, PID)
    with pytest.raises(errors.ServerReadOnlyError):
        await send_read_only()
    assert await own(client, PID) == before


async def test_database_that_stays_read_only_is_reported_until_it_is_writable(
    client: AsyncClient, observer: Connection
) -> None:
    name = sql.Identifier(observer.info.dbname)
    observer.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
    await own(client, READ_ONLY)
    with pytest.raises(errors.ServerReadOnlyError) as caught:
        await client.send("orders", 1)
    assert caught.value.sqlstate == "25006"
    with pytest.raises(errors.ServerReadOnlyError):
        await client.admin.check_writable()
    observer.execute("set default_transaction_read_only = off")
    observer.execute(sql.SQL("alter database {} reset default_transaction_read_only").format(name))
    await client.send("orders", 2)
    await client.admin.check_writable()


async def test_waiting_receiver_hears_of_messages_after_its_server_turned_read_only(
    client: AsyncClient, database: str
) -> None:
    async with AsyncClient(database, poll_interval=60.0) as waiter, AsyncTasks() as tasks:
        assert await waiter.receive("orders", wait=0.01) == []
        await own(waiter, READ_ONLY)
        call = tasks.start(waiter.receive, "orders", wait=60)
        await client.send("orders", 1)
        [message] = await call()
        await waiter.ack(message)


# Silence.


class Stopped:
    """The process of a session does nothing in the block; its kernel acknowledges what arrives."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


# The second one has the default limits, with which a silent server is left after 35 s at the latest: it is asked.
@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (Timeouts(answer=0.2), r"did not answer for .* unknown"),
        (Timeouts(), "does not work on the statement"),
    ],
    ids=["short limits", "default limits"],
)
async def test_call_whose_server_is_silent_ends_and_the_next_one_has_a_new_connection(
    client: AsyncClient, database: str, limits: Timeouts, error: str
) -> None:
    async with AsyncClient(database, timeouts=limits) as waiting:
        with Stopped(await own(waiting, PID)):
            with pytest.raises(errors.ConnectionLostError, match=error):
                await waiting.send("orders", 1)
            await waiting.send("orders", 2)


async def test_transaction_whose_server_is_silent_has_had_no_effect_nor_have_statements_of_its_own(
    database: str,
) -> None:
    async with AsyncClient(database, timeouts=Timeouts(answer=0.2)) as client:
        await client.queues.create("orders")

        async def send() -> None:
            async with client.transaction() as transaction:
                with Stopped(transaction.connection.info.backend_pid):
                    await transaction.send("orders", 3)

        async def suppress() -> None:
            async with client.transaction() as transaction:
                with (
                    Stopped(transaction.connection.info.backend_pid),
                    pytest.raises(psycopg.OperationalError, match="did not answer"),
                ):
                    await transaction.connection.execute("select 1")

        with pytest.raises(errors.ConnectionFailedError, match=r"did not answer.*nothing took effect"):
            await send()
        with pytest.raises(errors.ConnectionFailedError, match="nothing took effect"):
            await suppress()


async def test_call_that_its_server_works_on_is_waited_for(database: str, observer: Connection) -> None:
    sessions = "select sessions >= %s from pg_stat_database where datname = current_database()"
    lock = "select pg_advisory_lock(44)"
    limits = Timeouts(lock=0)
    async with AsyncClient(database, pool_size=1, timeouts=limits) as client, AsyncTasks() as tasks:
        before = await own(client, PID)
        observer.execute(lock)
        [(count,)] = observer.execute(
            "select sessions from pg_stat_database where datname = current_database()"
        )
        call = tasks.start(own, client, lock)
        # Two sessions have come and gone: it asked twice.
        await until_async(observer, sessions.replace("%s", str(count + 2)))
        observer.execute("select pg_advisory_unlock(44)")
        await call()
        assert await own(client, PID) == before


async def test_abandoned_client_ends_its_calls(database: str) -> None:
    client = AsyncClient(database, timeouts=Timeouts(answer=0))
    await client.queues.create("orders")
    with Stopped(await own(client, PID)):
        async with AsyncTasks() as tasks:
            call = tasks.start(client.send, "orders", 1)
            await client.close(abandon=True)
            with pytest.raises((errors.ConnectionLostError, errors.ConnectionFailedError)):
                await call()


# Sessions that the server ends.


@pytest.mark.parametrize(
    ("setting", "sqlstate", "advice"),
    [
        ("idle_in_transaction_session_timeout", "25P03", "call other services outside of it"),
        ("transaction_timeout", "25P04", "took longer than transaction_timeout"),
    ],
)
async def test_error_of_a_session_that_the_server_ended_has_its_reason(
    client: AsyncClient, observer: Connection, setting: str, sqlstate: str, advice: str
) -> None:
    if observer.info.server_version < 170000 and sqlstate == "25P04":
        pytest.skip("transaction_timeout came with PostgreSQL 17")

    async def idle() -> None:
        async with client.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
            await transaction.connection.execute(f"set local {setting} = '100ms'".encode())
            await until_async(observer, f"select not exists (select from pg_stat_activity where pid = {pid})")
            await transaction.send("orders", 1)

    with pytest.raises(errors.ConnectionFailedError, match="nothing took effect") as caught:
        await idle()
    assert (caught.value.code, caught.value.sqlstate) == ("session_ended", sqlstate)
    assert advice in str(caught.value)


# Another isolation level.


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_clients_with_a_dsn_work_whatever_the_default_isolation_level_is(
    database: str, observer: Connection, level: str
) -> None:
    alter = sql.SQL("alter database {} set default_transaction_isolation = {}")
    observer.execute(alter.format(sql.Identifier(observer.info.dbname), sql.Literal(level)))
    async with AsyncClient(database) as client:
        await client.install()
        await client.queues.create("orders")
        await client.queues.set_policy("orders", ordered=True, max_in_flight=10)
        await client.send_batch("orders", [1, 2], group="a")
        assert [message.body for message in await client.receive("orders", wait=1)] == [1]
        await client.admin.maintain()
        [finding] = [each for each in await client.health.doctor() if each.check == "isolation level"]
    assert finding.level == "warning"
    assert f"has {level}" in finding.finding
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        borrowed = AsyncClient(connection=connection)
        with pytest.raises(errors.InvalidTransactionError, match="default_transaction_isolation") as caught:
            await borrowed.admin.maintain()
        assert caught.value.code == "isolation_level"
        with pytest.raises(errors.InvalidTransactionError, match="default_transaction_isolation"):
            await borrowed.receive("orders")


async def test_transaction_with_another_level_is_told_to_begin_with_read_committed(
    client: AsyncClient,
) -> None:
    async def maintain() -> None:
        async with client.transaction() as transaction:
            await transaction.connection.execute("set transaction isolation level serializable")
            await transaction.admin.maintain()

    with pytest.raises(errors.InvalidTransactionError, match="with isolation level read committed") as caught:
        await maintain()
    assert "default_transaction_isolation" not in str(caught.value)
