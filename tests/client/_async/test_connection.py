"""Pools, connections and transactions: whose they are, what is committed, and what a broken one means."""

import os
import socket
import threading
import time
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from tests.client.concurrency import SOMEBODY_WAITS, AsyncTasks, away, until_async
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient
from spanmq.client.concurrency import in_thread
from spanmq.client.dsn import Timeouts, answer_seconds, with_timeouts
from spanmq.errors import (
    ConnectionFailedError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidTransactionError,
    NotPossibleError,
    QueueNotFoundError,
)

Connection = psycopg.Connection[Any]


pytestmark = pytest.mark.reused


async def connected(client: AsyncClient) -> None:
    """Return when its pool has connected, which takes longer than its timeout where the machine is busy."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            await client.queues.list()
            return
        except ConnectionFailedError:
            assert time.monotonic() < deadline


# For all sessions of this database but the observer's own.
OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
TERMINATE = f"select pg_terminate_backend(pid, 20000) {OTHERS}"


# What a client is given.


async def test_client_without_arguments_uses_the_dsn_of_the_environment(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANMQ_DSN", database)
    async with AsyncClient() as client:
        assert await client.admin.flavour() == "spanmq"


async def test_dsn_that_nobody_can_read_is_a_typed_error() -> None:
    with pytest.raises(InvalidArgumentError, match="DSN"):
        await AsyncClient("no dsn at all").queues.list()


@pytest.mark.parametrize("change", [{"dbname": "no_such_database"}, {"host": "/no/such/folder"}], ids=repr)
async def test_server_that_can_not_be_reached_is_reported_at_once_with_its_reason(
    database: str, change: dict[str, str]
) -> None:
    # A pool that went on trying would do so for longer than the test may take.
    client = AsyncClient(make_conninfo(database, **change), timeout=10 * WAIT_SECONDS)
    with pytest.raises(ConnectionFailedError, match=r"/no/such/folder|no_such_database"):
        await client.send("orders", 1)
    with pytest.raises(ConnectionFailedError):
        async with client:
            pass


async def test_closed_client_says_so(client: AsyncClient) -> None:
    await client.close()
    await client.close()
    with pytest.raises(ConnectionFailedError, match="closed"):
        await client.queues.list()
    never_opened = AsyncClient("")
    await never_opened.close()
    with pytest.raises(ConnectionFailedError, match="closed"):
        await never_opened.queues.list()


async def test_close_beside_the_first_open_leaves_no_connection(
    database: str, client: AsyncClient, observer: Connection
) -> None:
    await client.close()
    connecting, closed = threading.Event(), threading.Event()

    def password() -> str:
        connecting.set()
        assert closed.wait(WAIT_SECONDS)
        return "unused"

    late = AsyncClient(database, password=password, maintain_interval=0.001)
    async with AsyncTasks() as tasks:
        opening = tasks.start(late.open)
        assert await in_thread(partial(connecting.wait, WAIT_SECONDS))
        await late.close()
        closed.set()
        with pytest.raises(ConnectionFailedError, match="closed"):
            await opening()
    await until_async(observer, f"select count(*) = 0 {OTHERS}")


async def test_first_calls_at_the_same_time_open_one_pool(database: str, client: AsyncClient) -> None:
    async with AsyncTasks() as tasks:
        fresh = AsyncClient(database, pool_size=2)
        calls = [tasks.start(fresh.send, "orders", number) for number in range(64)]
        assert len({await call() for call in calls}) == 64
        await fresh.close()
    assert (await client.queues.metrics("orders")).length == 64


@pytest.mark.parametrize("calls", [0, 1])
async def test_client_of_one_call_makes_one_connection(
    database: str, client: AsyncClient, observer: Connection, calls: int
) -> None:
    async def sessions() -> int:
        await until_async(observer, f"select count(*) = 0 {OTHERS}")
        # The observer's own session is not counted in between: a count that met another's lock comes a second later.
        observer.execute("select pg_stat_force_next_flush()")
        [(count,)] = observer.execute(
            "select sessions from pg_stat_database where datname = current_database()"
        ).fetchall()
        return int(count)

    await client.close()
    before = await sessions()
    async with AsyncClient(database) as fresh:
        for number in range(calls):
            await fresh.send("orders", number)
    assert await sessions() - before == 1


async def test_exhausted_pool_is_reported_after_the_timeout(database: str) -> None:
    async with AsyncClient(database, pool_size=1, timeout=0.05) as client:
        await connected(client)
        async with client.transaction():
            with pytest.raises(ConnectionFailedError, match="pool"):
                await client.queues.list()


async def test_client_only_borrows_from_a_pool(database: str, client: AsyncClient) -> None:
    rows: Any = {"row_factory": dict_row}
    async with AsyncConnectionPool(database, min_size=1, max_size=2, kwargs=rows, open=False) as pool:
        borrower = AsyncClient(pool=pool)
        await borrower.send("orders", 1)
        async with borrower.transaction() as transaction:
            await transaction.send("orders", 2)
        assert len(await borrower.receive("orders", 5, wait=0.01)) == 2
        await borrower.close()
        counted: list[Any] = [{"count": 2}]
        async with pool.connection() as connection:
            assert not connection.autocommit
            cursor = await connection.execute("select count(*) from pgmq.q_orders")
            assert await cursor.fetchall() == counted
    assert len(await client.peek("orders")) == 2


async def test_pool_gets_a_connection_back_whose_statement_was_interrupted(
    database: str, client: AsyncClient
) -> None:
    async with AsyncConnectionPool(database, min_size=1, max_size=1, open=False) as pool:
        borrower = AsyncClient(pool=pool, timeout=WAIT_SECONDS)

        async def interrupt() -> None:
            async with borrower.transaction() as transaction:
                transaction.connection.pgconn.send_query(b"select 1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await interrupt()
        assert (await borrower.queues.metrics("orders")).length == 0


async def test_pool_of_one_can_wait(database: str, client: AsyncClient) -> None:
    async with AsyncConnectionPool(database, min_size=1, max_size=1, open=False) as pool:
        assert await AsyncClient(pool=pool, timeout=WAIT_SECONDS).receive("orders", wait=0.05) == []


# Transactions.


async def test_transaction_that_raises_changes_nothing_also_of_ones_own(
    client: AsyncClient, observer: Connection
) -> None:
    observer.execute("create table business (number int)")
    await client.send("orders", 0)

    async def fail(queue: str) -> None:
        async with client.transaction() as transaction:
            await transaction.connection.execute("insert into business values (1)")
            await transaction.ack(await transaction.receive("orders", 2))
            await transaction.send(queue, 1)
            raise ZeroDivisionError

    with pytest.raises(QueueNotFoundError):
        await fail("nothing")
    with pytest.raises(ZeroDivisionError):
        await fail("orders")
    async with client.transaction() as transaction:
        await transaction.connection.execute("insert into business values (2)")
        await transaction.send("orders", 2)
    assert observer.execute("select number from business").fetchall() == [(2,)]
    messages = await client.receive("orders", 5)
    assert [(message.body, message.attempt) for message in messages] == [(0, 1), (2, 1)]


async def test_errors_of_own_statements_pass_as_they_are(client: AsyncClient) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        async with client.transaction() as transaction:
            await transaction.connection.execute("select 1 / 0")


async def test_failed_transaction_says_so_also_at_its_end(client: AsyncClient) -> None:
    async def swallow() -> None:
        async with client.transaction() as transaction:
            await transaction.send("orders", 1)
            with pytest.raises(QueueNotFoundError):
                await transaction.send("nothing", 1)
            with pytest.raises(InvalidTransactionError):
                await transaction.send("orders", 1)

    with pytest.raises(InvalidTransactionError, match="the transaction had no effect"):
        await swallow()
    assert (await client.queues.metrics("orders")).length == 0


async def test_transaction_within_a_transaction_is_a_savepoint(client: AsyncClient) -> None:
    async with client.transaction() as outer:
        await outer.send("orders", 1)

        async def fail() -> None:
            async with outer.transaction() as inner:
                await inner.send("orders", 2)
                await inner.send("nothing", 3)

        with pytest.raises(QueueNotFoundError):
            await fail()
        await outer.send("orders", 4)
    assert [message.body for message in await client.peek("orders")] == [1, 4]


async def test_client_over_a_pool_has_no_connection_to_show(client: AsyncClient) -> None:
    with pytest.raises(NotPossibleError, match="no connection of its own"):
        _ = client.connection


# A connection of the caller's.


async def test_nothing_is_committed_on_your_own_connection(database: str, client: AsyncClient) -> None:
    async with await psycopg.AsyncConnection.connect(database) as connection:
        own = AsyncClient(connection=connection)
        assert own.connection is connection
        await own.send("orders", 1)
        await own.send_batch("orders", range(2_500))
        async with own.transaction() as nested:
            await nested.send("orders", 2)
        await own.receive("orders")
        assert (await client.queues.metrics("orders")).length == 0
        await connection.rollback()
        async with own.transaction() as nested:
            await nested.send("orders", 3)
        await connection.rollback()
    assert (await client.queues.metrics("orders")).length == 0


async def test_strange_factories_of_your_connection_do_not_matter(database: str, client: AsyncClient) -> None:
    async with await psycopg.AsyncConnection.connect(
        database, row_factory=dict_row, cursor_factory=psycopg.AsyncRawCursor
    ) as connection:
        await connection.execute("set datestyle = 'German'")
        await connection.execute("set timezone = 'Asia/Kolkata'")
        own = AsyncClient(connection=connection)
        await own.send("orders", {"a": "é"}, headers={"h": 1})
        [message] = await own.receive("orders")
        assert (message.body, message.headers) == ({"a": "é"}, {"h": 1})
        assert str(message.enqueued_at.tzinfo) == "Asia/Kolkata"


async def test_closed_connection_says_so(database: str) -> None:
    connection = await psycopg.AsyncConnection.connect(database)
    await connection.close()
    with pytest.raises(ConnectionFailedError, match="closed"):
        await AsyncClient(connection=connection).send("orders", 1)
    with pytest.raises(ConnectionFailedError, match="closed"):
        await AsyncClient(connection=connection).receive("orders")


# Connections that break.


async def test_call_on_a_broken_connection_is_of_unknown_outcome(
    database: str, client: AsyncClient, observer: Connection
) -> None:
    with psycopg.connect(database) as blocker:
        async with AsyncTasks() as tasks:
            blocker.execute("lock table spanmq_core.queue in access exclusive mode")
            call = tasks.start(client.send, "orders", 1)
            await until_async(observer, SOMEBODY_WAITS)
            observer.execute(f"{TERMINATE} and wait_event_type = 'Lock'")
            with pytest.raises(
                ConnectionLostError, match=r"send\(\) on queue 'orders' \(57P01: .*\): .* is unknown"
            ) as caught:
                await call()
            blocker.rollback()
    assert (caught.value.function, caught.value.queue) == ("send", "orders")
    assert caught.value.sqlstate == "57P01"
    assert isinstance(caught.value.__cause__, psycopg.Error)
    await client.send("orders", 2)
    assert [message.body for message in await client.peek("orders")] == [2]


async def test_idle_connections_that_broke_are_replaced_unseen(
    client: AsyncClient, observer: Connection
) -> None:
    # With a pause after each, twice as long each time, the client would give up before it has passed eight.
    async with (
        client.transaction(),
        client.transaction(),
        client.transaction(),
        client.transaction(),
        client.transaction(),
        client.transaction(),
        client.transaction(),
        client.transaction(),
    ):
        pass
    # All of them, then some.
    for chosen in ("", " limit 2", " limit 2"):
        observer.execute(f"{TERMINATE}{chosen}")
        for number in range(4):
            await client.send("orders", number)


async def test_only_the_commit_of_a_broken_transaction_is_of_unknown_outcome(
    client: AsyncClient, observer: Connection
) -> None:
    async def fail(*, early: bool) -> None:
        async with client.transaction() as transaction:
            await transaction.send("orders", 1)
            observer.execute(
                "select pg_terminate_backend(%s, 20000)", [transaction.connection.info.backend_pid]
            )
            if early:
                await transaction.send("orders", 2)

    with pytest.raises(ConnectionFailedError, match=r"send\(\) .*nothing took effect") as undone:
        await fail(early=True)
    with pytest.raises(ConnectionLostError, match="the commit") as caught:
        await fail(early=False)
    assert (undone.value.code, undone.value.sqlstate) == ("session_ended", "57P01")
    assert caught.value.sqlstate == "57P01"
    assert await client.peek("orders") == []


async def test_network_that_broke_in_a_transaction_undoes_it(client: AsyncClient) -> None:
    async def fail() -> None:
        async with client.transaction() as transaction:
            with socket.socket(fileno=os.dup(transaction.connection.fileno())) as cable:
                cable.shutdown(socket.SHUT_RDWR)
            await transaction.send("orders", 1)

    with pytest.raises(ConnectionFailedError, match="nothing took effect") as caught:
        await fail()
    assert (caught.value.code, caught.value.sqlstate) == ("session_ended", None)
    assert await client.peek("orders") == []


async def test_server_that_went_away_is_reported_and_found_again(
    database: str, spanmq_server: str, client: AsyncClient
) -> None:
    async with AsyncClient(database, pool_size=1, timeout=0.2) as impatient:
        await connected(impatient)
        await impatient.send("orders", 1)
        await client.close()
        async with impatient.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
        # That the session is dead may be found before the call is sent, or after.
        with (
            away(spanmq_server, database, pid),
            pytest.raises((ConnectionFailedError, ConnectionLostError)),
        ):
            await impatient.queues.metrics("orders")
        await connected(impatient)
        assert (await impatient.queues.metrics("orders")).length == 1


LIMITS = (
    "select array[current_setting('lock_timeout'), current_setting('statement_timeout'),"
    " current_setting('idle_in_transaction_session_timeout')]"
)


@pytest.mark.parametrize(
    ("dsn_options", "options", "limits"),
    [
        ("", {}, ["5s", "30s", "1min"]),
        ("-c statement_timeout=0", {}, ["5s", "0", "1min"]),
        ("", {"timeouts": Timeouts(lock=1, statement=0)}, ["1s", "0", "1min"]),
        ("", {"timeouts": None}, ["0", "0", "0"]),
        ("", {"pooler": True}, ["0", "0", "0"]),
    ],
)
async def test_sessions_have_time_limits_unless_the_client_is_told_not_to(
    database: str, dsn_options: str, options: dict[str, Any], limits: list[str]
) -> None:
    dsn = make_conninfo(database, options=dsn_options)
    async with AsyncClient(dsn, **options) as client, client.transaction() as inner:
        assert (await (await inner.connection.execute(LIMITS)).fetchone()) == (limits,)


@pytest.mark.parametrize(
    ("dsn", "environment", "wanted"),
    [
        ("host=a,b", {}, "read-write"),
        ("postgresql://a:1,b:2/shop", {}, "read-write"),
        ("host=a,b target_session_attrs=any", {}, "any"),
        ("host=a,b", {"PGTARGETSESSIONATTRS": "any"}, None),
        ("dbname=shop", {"PGHOST": "a,b"}, "read-write"),
        ("host=a", {}, None),
    ],
)
def test_dsn_of_several_hosts_finds_the_writable_one(
    dsn: str, environment: dict[str, str], wanted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert conninfo_to_dict(with_timeouts(dsn, None)).get("target_session_attrs") == wanted


@pytest.mark.parametrize(
    ("dsn", "seconds"), [("host=a,b", 2), ("host=a,b connect_timeout=7", 7), ("host=a", 10)]
)
def test_next_of_several_hosts_is_tried_soon(dsn: str, seconds: int) -> None:
    assert conninfo_to_dict(with_timeouts(dsn, None))["connect_timeout"] == str(seconds)


@pytest.mark.parametrize(
    ("options", "timeouts", "seconds"),
    [
        ("", Timeouts(), 35),
        ("", Timeouts(answer=3), 3),
        ("", Timeouts(answer=0), None),
        ("", Timeouts(statement=0), 0),
        ("", None, 0),
        ("-c statement_timeout=60000", Timeouts(), 65),
        ("-c statement_timeout=1s --statement-timeout='2 min'", Timeouts(), 125),
        ("-c statement_timeout=0", Timeouts(), 0),
    ],
)
def test_server_may_be_silent_a_little_longer_than_a_statement_may_run(
    options: str, timeouts: Timeouts | None, seconds: float | None
) -> None:
    assert answer_seconds(make_conninfo("host=a", options=options), timeouts) == seconds
