"""Ctrl-C, a task that is cancelled, a connection that breaks, in the middle of a call.

Nothing was done, or it is said that nobody knows; and the client goes on.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.cli.program import Program, ask, finish, started, wait_until
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient, Client
from spanmq.errors import ConnectionFailedError, ConnectionLostError
from spanmq.model import Message

# Two calls' worth in one transaction, and enough for COPY.
CHUNKED, COPIED = 1_500, 2_500
# By name, in the words of either client; a transaction is left in the middle of its second call.
CALLS = (
    "send",
    "send_batch",
    "send_batch in chunks",
    "send_batch by COPY",
    "receive",
    "read_grouped",
    "pop",
    "ack",
    "nack",
    "reject",
    "extend",
    "delete",
    "archive",
    "set_vt",
    "purge",
    "drop",
    "transaction",
)
BLOCKED = (
    "select count(*) from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock' and pid <> pg_backend_pid()"
)
STATE = (
    "select jsonb_build_array("
    " (select jsonb_agg(to_jsonb(q) order by q.msg_id) from pgmq.q_orders q),"
    " (select count(*) from pgmq.a_orders), (select count(*) from spanmq.dead_letters('orders')),"
    " (select jsonb_agg(to_jsonb(s) order by s.msg_id) from spanmq_core.state s),"
    " (select jsonb_agg(to_jsonb(s) order by s.msg_id) from spanmq_core.later s),"
    " (select count(*) from spanmq_core.bulk_block))"
)
PROGRAM = """
import sys
from spanmq.client import Client
from tests.client.test_interrupt import call

with Client(sys.argv[1], pool_size=1, timeouts=None) as client:
    held = client.receive("orders", 4, lease=3600)
    print("ready", flush=True)
    for name in sys.stdin:
        try:
            call(client, name.strip(), held)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(client.inspect.state("orders", 1), flush=True)
"""


def call(client: Any, name: str, held: list[Message]) -> Any:
    """Make a call that waits for the table of runs; of an AsyncClient, what is to be awaited."""
    ids = [each.message_id for each in held]
    match name.split():
        case ["send"]:
            return client.send("orders", "interrupted")
        case ["send_batch", *rest]:
            n = {"chunks": CHUNKED, "COPY": COPIED}.get(rest[-1] if rest else "", 5)
            return client.send_batch("orders", range(n))
        case ["receive" | "pop" as verb]:
            return getattr(client, verb)("orders", 3)
        case ["read_grouped"]:
            return client.read("orders", 3, grouped="fill")
        case ["ack" | "nack" | "reject" as verb]:
            return getattr(client, verb)(held)
        case ["extend"]:
            return client.extend(held, 60)
        case ["delete" | "archive" as verb]:
            return getattr(client, verb)("orders", ids)
        case ["set_vt"]:
            return client.set_vt("orders", ids, 0)
        case ["purge" | "drop" as verb]:
            return getattr(client.queues, verb)("orders")
        case _:
            return transact(client) if isinstance(client, Client) else transact_async(client)


def transact(client: Client) -> None:
    with client.transaction() as transaction:
        transaction.connection.execute("insert into business values (1)")
        transaction.send("orders", "interrupted")


async def transact_async(client: AsyncClient) -> None:
    async with client.transaction() as transaction:
        await transaction.connection.execute("insert into business values (1)")
        await transaction.send("orders", "interrupted")


@pytest.fixture
def orders(database: str) -> str:
    with Client(database) as client:
        client.queues.create("orders")
        client.send_batch("orders", range(10), headers=[{"x-pgmq-group": str(n % 3)} for n in range(10)])
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("create table business (number int)")
    return database


@contextmanager
def spans_locked(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """Make everybody who sends, takes or settles wait; the connection itself may look."""
    with psycopg.connect(dsn) as blocker:
        blocker.execute("lock table spanmq_core.state, spanmq_core.later in access exclusive mode")
        yield blocker
        blocker.rollback()


def state(blocker: psycopg.Connection[Any]) -> Any:
    return blocker.execute(STATE).fetchone()


def test_interrupted_call_changes_nothing_and_the_client_goes_on(orders: str) -> None:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, orders]
    with Program(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        for name in CALLS:
            with spans_locked(orders) as blocker:
                before = state(blocker)
                print(name, file=process.stdin, flush=True)
                wait_until(lambda: ask(orders, BLOCKED) == 1)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n", name
                assert state(blocker) == before, name
            assert process.stdout.readline() == "processing\n", name
            assert ask(orders, "select count(*) from business") == 0
        process.stdin.close()
        assert process.wait(WAIT_SECONDS) == 0


async def each_call_is_ended(dsn: str, end: Callable[[asyncio.Task[Any]], Awaitable[None]]) -> None:
    """Begin each call, end it where it waits in the server: nothing was done, and the client goes on."""
    async with AsyncClient(dsn, pool_size=1, timeouts=None) as client:
        held = await client.receive("orders", 4, lease=3600)
        for name in CALLS:
            with spans_locked(dsn) as blocker:
                before = state(blocker)
                task = asyncio.ensure_future(call(client, name, held))
                await asyncio.to_thread(wait_until, lambda: ask(dsn, BLOCKED) == 1)
                await end(task)
                assert ask(dsn, BLOCKED) == 0
                assert state(blocker) == before, name
            assert await client.inspect.state("orders", 1) == "processing"
            assert ask(dsn, "select count(*) from business") == 0


async def test_cancelled_call_changes_nothing_and_the_client_goes_on(orders: str) -> None:
    async def cancel(task: asyncio.Task[Any]) -> None:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await each_call_is_ended(orders, cancel)


async def test_cancelled_wait_takes_nothing(client: Client, database: str) -> None:
    listening = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and query like '%spanmq.poll%' and pid <> pg_backend_pid()"
    )
    async with AsyncClient(database) as waiter:
        wait = asyncio.create_task(waiter.receive("orders", wait=60))
        await asyncio.to_thread(wait_until, lambda: ask(database, listening) > 0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        await waiter.send("orders", 1)
        assert len(await waiter.receive("orders")) == 1


TERMINATE = (
    f"select pg_terminate_backend(pid, {1000 * WAIT_SECONDS:.0f}) from pg_stat_activity"
    " where datname = current_database() and wait_event_type = 'Lock' and pid <> pg_backend_pid()"
)


async def test_call_on_a_connection_that_breaks_says_what_is_known_and_the_client_goes_on(
    orders: str,
) -> None:
    # The server has not done it. Of a call that is a transaction of several statements, the client knows that.
    async def break_connection(task: asyncio.Task[Any]) -> None:
        assert ask(orders, TERMINATE)
        with pytest.raises((ConnectionLostError, ConnectionFailedError), match=r"during \w+\(\) ") as caught:
            await task
        known, hint = str(caught.value).splitlines()
        if isinstance(caught.value, ConnectionLostError):
            assert known.endswith("is unknown")
            assert hint.startswith("hint: Check")
        else:
            assert known.endswith("nothing took effect")

    await each_call_is_ended(orders, break_connection)


@pytest.mark.parametrize(
    "command",
    [
        ["send", "orders", "1"],
        ["receive", "orders"],
        ["message delete", "orders", "1"],
        ["queue purge", "orders", "--yes"],
    ],
    ids=" ".join,
)
def test_command_on_a_connection_that_breaks_says_that_it_does_not_know(
    orders: str, command: list[str]
) -> None:
    with spans_locked(orders) as blocker:
        before = state(blocker)
        with started(*command, dsn=orders) as process:
            wait_until(lambda: ask(orders, BLOCKED) == 1, process)
            assert ask(orders, TERMINATE)
            done = finish(process)
        assert state(blocker) == before
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("spanmq: connection lost: the connection was lost during ")
    assert "is unknown\nhint: Check before you repeat a send" in done.err
