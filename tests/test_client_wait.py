"""Waiting for messages, and the housekeeping in the background."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS

from spanmq.client import Client
from spanmq.client_async import AsyncClient
from spanmq.errors import ConnectionFailedError
from spanmq.listen import Announcement, Listener, receive_until
from spanmq.message import Message

Connection = psycopg.Connection[Any]


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


@pytest.fixture
def observer(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def until(observer: Connection, query: str) -> None:
    """Return as soon as a query gives true."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        observer.execute("select pg_stat_clear_snapshot()")
        row = observer.execute(query.encode()).fetchone()
        if row is not None and row[0]:
            return
        time.sleep(0.005)
    raise AssertionError(query)


SOMEBODY_LISTENS = (
    "select count(*) > 0 from pg_stat_activity"
    " where datname = current_database() and query like '%pgmq.await_messages%' and pid <> pg_backend_pid()"
)


# Waiting.


def test_wait_ends_with_the_first_message(client: Client) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.receive, "orders", 5, wait=60)
        client.send("orders", 1)
        assert [message.body for message in waiting.result(WAIT_SECONDS)] == [1]


def test_wait_that_is_over_gives_nothing(client: Client) -> None:
    started = time.monotonic()
    assert client.receive("orders", wait=timedelta(seconds=0.2)) == []
    assert client.read("orders", wait=0) == []
    assert 0.2 <= time.monotonic() - started < 60


def test_message_that_is_there_is_taken_without_waiting(client: Client) -> None:
    client.send("orders", 1)
    started = time.monotonic()
    assert len(client.receive("orders", 5, wait=60)) == 1
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("listen", [True, False])
def test_delayed_message_ends_a_wait(database: str, client: Client, listen: bool) -> None:
    client.send("orders", 1, delay=0.3)
    with Client(database, listen=listen, maintain_interval=None) as waiter:
        assert len(waiter.read_grouped("orders", wait=60)) == 1


class Waits(Announcement):
    """Announces nothing, and notes how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, seconds: float | None = None) -> bool:
        self.seconds.append(seconds or 0)
        return False


def test_wait_is_no_longer_than_until_something_falls_due(client: Client) -> None:
    looks: Iterator[Any] = iter([[]] * 8 + [["message"]])
    waits = Waits()
    asked: list[int] = []

    def ahead() -> float | None:
        asked.append(len(waits.seconds))
        return 0.05 if len(asked) == 1 else None

    found: Any = receive_until(lambda: next(looks), waits, time.monotonic() + WAIT_SECONDS, 9.0, ahead)
    assert found == ["message"]
    # 5 ms, and then twice as long each time; short waits are not asked for.
    assert waits.seconds[:5] == [0.005, 0.01, 0.02, 0.04, 0.08]
    assert asked == [5, 6, 7, 8]
    assert 0 < waits.seconds[5] <= 0.05
    assert waits.seconds[6] == 0.32


def test_wait_in_a_transaction_sees_what_others_commit(client: Client) -> None:
    with ThreadPoolExecutor() as threads, client.transaction() as transaction:
        waiting = threads.submit(transaction.receive, "orders", wait=60)
        client.send("orders", 1)
        assert len(waiting.result(WAIT_SECONDS)) == 1


def test_wait_holds_neither_snapshot_nor_transaction(client: Client, observer: Connection) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.receive, "orders", wait=60)
        until(observer, SOMEBODY_LISTENS)
        until(
            observer,
            "select count(*) = 0 from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and (backend_xmin is not null or xact_start is not null)",
        )
        client.send("orders", 1)
        waiting.result(WAIT_SECONDS)


def test_many_waiters_share_one_listening_connection(client: Client, observer: Connection) -> None:
    client.create_queue("events")
    queues = ["orders"] * 12 + ["events"] * 12
    with ThreadPoolExecutor(24) as threads:
        waiting = [threads.submit(client.receive, queue, wait=60) for queue in queues]
        until(observer, SOMEBODY_LISTENS)
        listening = observer.execute(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and query like '%pgmq.await_messages%'"
            " and pid <> pg_backend_pid()"
        ).fetchone()
        client.send_batch("orders", range(12))
        client.send_batch("events", range(12))
        received: list[Message] = [message for future in waiting for message in future.result(WAIT_SECONDS)]
    assert listening == (1,)
    assert len({(message.queue, message.message_id) for message in received}) == 24


def test_announced_message_wakes_who_listens(database: str, client: Client) -> None:
    client.create_queue("Mixed")
    listener = Listener(lambda: psycopg.connect(database, autocommit=True))
    try:
        with listener.announcements("Mixed") as mixed, listener.announcements("orders") as orders:
            # Both are set when listening begins.
            assert mixed.wait(WAIT_SECONDS)
            assert orders.wait(WAIT_SECONDS)
            mixed.clear()
            orders.clear()
            client.send("Mixed", 1)
            assert mixed.wait(WAIT_SECONDS)
            assert not orders.is_set()
            client.send("orders", 1)
            assert orders.wait(WAIT_SECONDS)
    finally:
        listener.stop()
        listener.join()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but an announcement end a wait."""
    monkeypatch.setattr("spanmq.listen.FIRST_POLL_SECONDS", 1000.0)


@pytest.mark.usefixtures("no_polls")
def test_message_ends_a_wait_without_anything_switched_on(
    database: str, client: Client, observer: Connection
) -> None:
    for queue in ("orders", "Mixed"):
        client.create_queue(queue)
        with (
            Client(database, maintain_interval=None, poll_interval=1000) as waiter,
            ThreadPoolExecutor() as threads,
        ):
            waiting = threads.submit(waiter.receive, queue, wait=60)
            until(observer, f"select waiting is not null from spanmq.queue where name = '{queue}'")
            until(
                observer,
                "select count(*) > 0 from pg_stat_activity where state = 'idle'"
                " and query like '%await_messages%' and datname = current_database()",
            )
            client.send(queue, 1)
            assert len(waiting.result(WAIT_SECONDS)) == 1


@pytest.mark.usefixtures("no_polls")
def test_message_that_came_before_listening_began_is_found(client: Client) -> None:
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(client.receive, "orders", wait=60)
        client.send("orders", 1)
        assert len(waiting.result(WAIT_SECONDS)) == 1


@pytest.mark.usefixtures("no_polls")
def test_upstream_announces_where_it_is_switched_on(upstream_database: str) -> None:
    with (
        Client(upstream_database, poll_interval=1000) as client,
        psycopg.connect(upstream_database, autocommit=True) as observer,
        ThreadPoolExecutor() as threads,
    ):
        client.create_queue("orders")
        client.enable_notify_insert("orders", throttle=0)
        waiting = threads.submit(client.read, "orders", wait=60)
        until(
            observer,
            "select count(*) > 0 from pg_stat_activity where state = 'idle' and query like 'listen %'"
            " and datname = current_database()",
        )
        client.send("orders", 1)
        assert len(waiting.result(WAIT_SECONDS)) == 1


def test_broken_listener_leaves_polls_and_is_logged_once(
    database: str, client: Client, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Client(database, poll_interval=0.02, maintain_interval=None) as waiter,
        ThreadPoolExecutor() as threads,
    ):
        waiting = threads.submit(waiter.receive, "orders", wait=60)
        until(observer, SOMEBODY_LISTENS)
        # Returns when it has ended: the next one may be there before anybody looks.
        ended = observer.execute(
            "select pg_terminate_backend(pid, 20000) from pg_stat_activity"
            " where datname = current_database() and query like '%await_messages%'"
            " and pid <> pg_backend_pid()"
        ).fetchall()
        assert ended == [(True,)]
        client.send("orders", 1)
        assert len(waiting.result(WAIT_SECONDS)) == 1
    assert [record.message.split()[0] for record in caplog.records if record.name == "spanmq"] == [
        "listening_failed"
    ]


def test_listener_that_never_connects_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    enough = threading.Event()

    def connect() -> psycopg.Connection[Any]:
        tried.append(1)
        if len(tried) > 3:
            enough.set()
        return psycopg.connect("host=/no/such/folder")

    monkeypatch.setattr("spanmq.listen.RETRY_SECONDS", 0.001)
    listener = Listener(connect)
    with listener.announcements("orders"):
        assert enough.wait(WAIT_SECONDS)
        listener.stop()
        listener.join()
    assert len([record for record in caplog.records if record.name == "spanmq"]) == 1


def test_asynchronous_waits_share_one_connection_too(
    database: str, client: Client, observer: Connection
) -> None:
    async def scenario() -> None:
        async with AsyncClient(database, maintain_interval=None) as waiter:
            waits = [asyncio.create_task(waiter.receive("orders", wait=60)) for _ in range(20)]
            await asyncio.to_thread(until, observer, SOMEBODY_LISTENS)
            await waiter.send_batch("orders", range(20))
            received = await asyncio.gather(*waits)
            assert len({messages[0].message_id for messages in received}) == 20
            assert await waiter.receive("orders", wait=0.05) == []

    asyncio.run(scenario())


def test_cancelled_wait_takes_nothing(database: str, client: Client, observer: Connection) -> None:
    async def scenario() -> None:
        async with AsyncClient(database, maintain_interval=None) as waiter:
            wait = asyncio.create_task(waiter.receive("orders", wait=60))
            await asyncio.to_thread(until, observer, SOMEBODY_LISTENS)
            wait.cancel()
            with pytest.raises(asyncio.CancelledError):
                await wait
            await waiter.send("orders", 1)
            assert len(await waiter.receive("orders")) == 1

    asyncio.run(scenario())


# Housekeeping.


def keepers() -> set[threading.Thread]:
    """Give the threads that keep house; a client of an earlier test may have left one."""
    return {thread for thread in threading.enumerate() if thread.name == "spanmq maintenance"}


def maintenance_calls(observer: Connection) -> None:
    """Count the calls of `maintain` from now on in a sequence, which needs no commit."""
    observer.execute("create sequence maintained")
    observer.execute("alter function pgmq.maintain rename to maintain_before")
    observer.execute(
        "create function pgmq.maintain(budget int default 10)"
        " returns table (action text, queue text, detail text) language plpgsql as"
        " $$ begin perform nextval('public.maintained');"
        " return query select * from pgmq.maintain_before(budget); end $$"
    )


def test_client_with_a_dsn_keeps_house(database: str, client: Client, observer: Connection) -> None:
    maintenance_calls(observer)
    before = observer.execute("select count(*) from spanmq.segment").fetchone()
    assert before is not None
    with Client(database, maintain_interval=0.01):
        until(observer, f"select count(*) > {before[0]} from spanmq.segment")
        until(observer, "select last_value > 5 from maintained")


def test_client_of_your_own_connection_keeps_no_house(database: str, observer: Connection) -> None:
    before = keepers()
    with Client(connection=observer, maintain_interval=0.001), Client(database, maintain_interval=None):
        assert keepers() <= before


def test_asynchronous_client_keeps_house(database: str, client: Client, observer: Connection) -> None:
    maintenance_calls(observer)

    async def scenario() -> None:
        async with AsyncClient(database, maintain_interval=0.01):
            await asyncio.to_thread(until, observer, "select last_value > 5 from maintained")

    asyncio.run(scenario())


def test_failing_maintenance_is_logged_once_and_disturbs_nobody(
    database: str, client: Client, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    observer.execute("create sequence failures")
    observer.execute(
        "create or replace function pgmq.maintain(budget int default 10)"
        " returns table (action text, queue text, detail text) language plpgsql as $$ begin"
        " perform nextval('public.failures'); raise exception 'broken'; end $$"
    )
    with Client(database, maintain_interval=0.01) as keeper:
        until(observer, "select last_value > 3 from failures")
        keeper.send("orders", 1)
    logged = [record for record in caplog.records if record.name == "spanmq"]
    assert [record.levelno for record in logged] == [logging.WARNING]
    assert logged[0].message == "maintenance_failed error=broken; trying again"


def send_without_end(client: Client) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        client.send("orders", 2)


def test_closing_a_client_in_the_middle_of_its_housekeeping_is_no_failure(
    database: str, client: Client, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    observer.execute(
        "create or replace function pgmq.maintain(budget int default 10)"
        " returns table (action text, queue text, detail text) language plpgsql as $$ begin"
        " perform pg_advisory_xact_lock(1); end $$"
    )
    observer.execute("select pg_advisory_lock(1)")
    keeper = Client(database, maintain_interval=0.01, listen=False)
    keeper.send("orders", 1)
    until(
        observer,
        "select count(*) > 0 from pg_stat_activity"
        " where datname = current_database() and wait_event = 'advisory'",
    )
    closing = threading.Thread(target=keeper.close)
    closing.start()
    with pytest.raises(ConnectionFailedError):
        send_without_end(keeper)
    observer.execute("select pg_advisory_unlock(1)")
    closing.join(WAIT_SECONDS)
    assert not closing.is_alive()
    assert [record for record in caplog.records if record.name == "spanmq"] == []


def test_upstream_needs_no_housekeeping(upstream_database: str, caplog: pytest.LogCaptureFixture) -> None:
    before = keepers()
    with Client(upstream_database, maintain_interval=0.001) as client:
        client.list_queues()
        for thread in keepers() - before:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
    assert [record for record in caplog.records if record.name == "spanmq"] == []


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_client_that_nobody_uses_any_more_ends_its_threads(database: str, client: Client) -> None:
    before = keepers()
    forgotten = Client(database, maintain_interval=0.01)
    forgotten.send("orders", 1)
    watched = weakref.ref(forgotten)
    [thread] = keepers() - before
    # Found by a thread of its own pool, the pool would wait for that thread.
    gc.disable()
    try:
        del forgotten
        deadline = time.monotonic() + WAIT_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            gc.collect()
            thread.join(0.02)
    finally:
        gc.enable()
    assert watched() is None
    assert not thread.is_alive()


def test_housekeeping_before_the_installation_is_no_failure(
    empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    of_others = (
        "select count(*) > 0 from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle'"
    )
    with (
        psycopg.connect(empty_database, autocommit=True) as observer,
        Client(empty_database, maintain_interval=0.01, listen=False) as client,
    ):
        # It has asked what the database holds, again and again.
        until(observer, f"{of_others} and query like '%spanmq_version%'")
        client.install()
        until(observer, f"{of_others} and query like '%upcoming_schedules%'")
    assert [record for record in caplog.records if "maintenance_failed" in record.getMessage()] == []
