"""Waiting for messages, and the housekeeping in the background."""

import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from tests.client.concurrency import AsyncTasks, until_async
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient
from spanmq.client._async.listener import AsyncAnnouncement, AsyncListener, look_until
from spanmq.client.concurrency import AsyncEvent
from spanmq.errors import ConnectionFailedError
from spanmq.model import Message

Connection = psycopg.Connection[Any]


# A connection that begins to listen says so, listens, and says so again.
LISTENERS = (
    "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and query ~ '^(un)?listen |spanmq[.](await_messages|poll|pass_on)'"
)
SOMEBODY_LISTENS = f"select count(*) > 0 {LISTENERS}"


# Waiting.


async def test_wait_that_is_over_gives_nothing(client: AsyncClient) -> None:
    assert await client.receive("orders", wait=timedelta(seconds=0.2)) == []
    assert await client.read("orders", wait=0) == []


async def test_message_that_is_there_is_taken_without_waiting(
    client: AsyncClient, observer: Connection
) -> None:
    await client.send("orders", 1)
    assert len(await client.receive("orders", 5, wait=WAIT_SECONDS)) == 1
    assert observer.execute(SOMEBODY_LISTENS).fetchone() == (False,)


@pytest.mark.parametrize("listen", [True, False])
async def test_delayed_message_ends_a_wait(database: str, client: AsyncClient, listen: bool) -> None:
    await client.send("orders", 1, delay=0.3)
    async with AsyncClient(database, listen=listen) as waiter:
        assert len(await waiter.read("orders", wait=WAIT_SECONDS, grouped="fill")) == 1


class Waits(AsyncAnnouncement):
    """Announces nothing, and notes how long it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    async def wait(self, seconds: float | None = None) -> bool:
        self.seconds.append(seconds or 0)
        return False


async def test_wait_is_no_longer_than_until_something_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    # For pauses it is always the same time: what is due in a moment does not fall due meanwhile.
    monkeypatch.setattr("spanmq.client.polling.monotonic", lambda: 100.0)
    looks: Iterator[Any] = iter([[]] * 8 + [["message"]])
    waits = Waits()
    asked: list[int] = []

    async def look() -> Any:
        return next(looks)

    async def ahead() -> float | None:
        asked.append(len(waits.seconds))
        return 0.05 if len(asked) == 1 else None

    found: Any = await look_until(look, bool, waits, time.monotonic() + WAIT_SECONDS, 9.0, ahead=ahead)
    assert found == ["message"]
    # 5 ms, and then twice as long each time; short waits are not asked for.
    assert waits.seconds[:5] == [0.005, 0.01, 0.02, 0.04, 0.08]
    assert asked == [5, 6, 7, 8]
    assert waits.seconds[5] == pytest.approx(0.05)
    assert waits.seconds[6] == 0.32


async def test_wait_in_a_transaction_sees_what_others_commit(client: AsyncClient) -> None:
    async with AsyncTasks() as tasks, client.transaction() as transaction:
        waiting = tasks.start(transaction.receive, "orders", wait=WAIT_SECONDS)
        await client.send("orders", 1)
        assert len(await waiting()) == 1


async def test_wait_holds_neither_snapshot_nor_transaction(client: AsyncClient, observer: Connection) -> None:
    async with AsyncTasks() as tasks:
        waiting = tasks.start(client.receive, "orders", wait=WAIT_SECONDS)
        await until_async(observer, SOMEBODY_LISTENS)
        await until_async(
            observer,
            "select count(*) = 0 from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and (backend_xmin is not null or xact_start is not null)",
        )
        await client.send("orders", 1)
        await waiting()


async def test_many_waiters_share_one_listening_connection(client: AsyncClient, observer: Connection) -> None:
    await client.queues.create("events")
    queues = ["orders"] * 12 + ["events"] * 12
    async with AsyncTasks() as tasks:
        waiting = [tasks.start(client.receive, queue, wait=WAIT_SECONDS) for queue in queues]
        await until_async(observer, SOMEBODY_LISTENS)
        listening = observer.execute(f"select count(*) {LISTENERS}").fetchone()
        await client.send_batch("orders", range(12))
        await client.send_batch("events", range(12))
        received: list[Message] = [message for future in waiting for message in await future()]
    assert listening == (1,)
    assert len({(message.queue, message.message_id) for message in received}) == 24


async def test_announced_message_wakes_a_waiting_receiver(database: str, client: AsyncClient) -> None:
    await client.queues.create("Mixed")
    listener = AsyncListener(lambda: connection_to(database))
    try:
        async with listener.announcements("Mixed") as mixed, listener.announcements("orders") as orders:
            # Both are set when listening begins.
            assert await mixed.wait(WAIT_SECONDS)
            assert await orders.wait(WAIT_SECONDS)
            mixed.clear()
            orders.clear()
            await client.send("Mixed", 1)
            assert await mixed.wait(WAIT_SECONDS)
            assert not await orders.wait(0)
            await client.send("orders", 1)
            assert await orders.wait(WAIT_SECONDS)
    finally:
        listener.stop()
        await listener.join()


@asynccontextmanager
async def connection_to(dsn: str) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing but an announcement end a wait."""
    monkeypatch.setattr("spanmq.client.polling.FIRST_SECONDS", 1000.0)


@pytest.mark.usefixtures("no_polls")
async def test_message_ends_a_wait_without_anything_switched_on(
    database: str, client: AsyncClient, observer: Connection
) -> None:
    for queue in ("orders", "Mixed"):
        await client.queues.create(queue)
        async with AsyncClient(database, poll_interval=1000) as waiter, AsyncTasks() as tasks:
            waiting = tasks.start(waiter.receive, queue, wait=WAIT_SECONDS)
            await until_async(
                observer, f"select spanmq_core.is_awaited(q) from spanmq_core.queue q where name = '{queue}'"
            )
            await until_async(
                observer,
                "select count(*) > 0 from pg_stat_activity where state = 'idle'"
                " and query like '%spanmq.poll%' and datname = current_database()",
            )
            await client.send(queue, 1)
            assert len(await waiting()) == 1


@pytest.mark.usefixtures("no_polls")
async def test_message_that_came_before_listening_began_is_found(client: AsyncClient) -> None:
    async with AsyncTasks() as tasks:
        waiting = tasks.start(client.receive, "orders", wait=WAIT_SECONDS)
        await client.send("orders", 1)
        assert len(await waiting()) == 1


@pytest.mark.usefixtures("no_polls")
async def test_upstream_announces_where_it_is_switched_on(
    upstream: AsyncClient, upstream_database: str
) -> None:
    await upstream.admin.notifications.enable("orders", throttle=0)
    with psycopg.connect(upstream_database, autocommit=True) as observer:
        async with AsyncClient(upstream_database, poll_interval=1000) as waiter, AsyncTasks() as tasks:
            waiting = tasks.start(waiter.read, "orders", wait=WAIT_SECONDS)
            await until_async(
                observer,
                "select count(*) > 0 from pg_stat_activity where state = 'idle' and query like 'listen %'"
                " and datname = current_database()",
            )
            await upstream.send("orders", 1)
            assert len(await waiting()) == 1


async def test_broken_listener_leaves_polls_and_is_logged_once(
    database: str, client: AsyncClient, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncClient(database, poll_interval=0.02) as waiter, AsyncTasks() as tasks:
        waiting = tasks.start(waiter.receive, "orders", wait=WAIT_SECONDS)
        await until_async(observer, SOMEBODY_LISTENS)
        # Returns when it has ended: the next one may be there before anybody looks.
        terminate = f"select pg_terminate_backend(pid, {1000 * WAIT_SECONDS:.0f}) {LISTENERS}"
        ended = observer.execute(terminate).fetchall()
        assert ended == [(True,)]
        await client.send("orders", 1)
        assert len(await waiting()) == 1
    assert [record.getMessage().split()[0] for record in caplog.records if record.name == "spanmq"] == [
        "listening_failed"
    ]


async def test_listener_that_never_connects_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    tried: list[int] = []
    enough = AsyncEvent()

    def connect() -> AbstractAsyncContextManager[psycopg.AsyncConnection[Any]]:
        tried.append(1)
        if len(tried) > 3:
            enough.set()
        return connection_to("host=/no/such/folder")

    listener = AsyncListener(connect)
    async with listener.announcements("orders"):
        assert await enough.wait(WAIT_SECONDS)
        listener.stop()
        await listener.join()
    assert len([record for record in caplog.records if record.name == "spanmq"]) == 1


# Housekeeping.


def maintain_as(observer: Connection, statement: str) -> None:
    """Have `maintain` count its calls from now on in a sequence, which needs no commit, and then do this."""
    observer.execute("create sequence maintained")
    observer.execute("alter function spanmq.maintain rename to maintain_before")
    observer.execute(
        "create function spanmq.maintain(budget int default 10)"
        " returns table (action text, queue text, detail text) language plpgsql as"
        f" $$ begin perform nextval('public.maintained'); {statement}; end $$".encode()
    )


async def test_client_with_a_dsn_keeps_house(
    database: str, client: AsyncClient, observer: Connection
) -> None:
    maintain_as(observer, "return query select * from spanmq.maintain_before(budget)")
    before = observer.execute("select count(*) from spanmq_core.segment").fetchone()
    assert before is not None
    # A queue without a message needs no segment more.
    await client.send("orders", 1)
    async with AsyncClient(database, maintain_interval=0.01):
        await until_async(observer, f"select count(*) > {before[0]} from spanmq_core.segment")
        await until_async(observer, "select last_value > 5 from maintained")


async def test_failing_maintenance_is_logged_with_its_number_and_disturbs_nobody(
    database: str,
    client: AsyncClient,
    observer: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spanmq.client._async.maintenance.LOG_EVERY", 3)
    maintain_as(observer, "raise exception E'broken\\n\"in two\"'")
    async with AsyncClient(database, maintain_interval=0.01) as keeper:
        await until_async(observer, "select last_value > 6 from maintained")
        await keeper.send("orders", 1)
    logged = [record for record in caplog.records if record.name == "spanmq"]
    assert {record.levelno for record in logged} == {logging.WARNING}
    assert [record.getMessage() for record in logged][:3] == [
        f"maintenance_failed number={number} error_class=ServerError error='broken\\n\"in two\"'"
        for number in (1, 3, 6)
    ]


async def send_without_end(client: AsyncClient) -> None:
    while True:
        await client.send("orders", 2)


async def test_maintenance_that_a_standby_refuses_is_tried_less_and_less_often(
    database: str, client: AsyncClient, observer: Connection
) -> None:
    maintain_as(observer, "raise exception using errcode = '25006'")
    began_at = time.monotonic()
    dsn = make_conninfo(database, target_session_attrs="any")
    async with AsyncClient(dsn, maintain_interval=0.01) as keeper, AsyncTasks() as tasks:
        # The calls of a client without this error make its maintenance run at every interval.
        call = tasks.start(send_without_end, keeper)
        await until_async(observer, "select last_value >= 5 from maintained")
        seconds = time.monotonic() - began_at
        await keeper.close()
        with pytest.raises(ConnectionFailedError):
            await call()
    assert seconds >= 0.01 + 0.02 + 0.04 + 0.08 + 0.16


async def test_closing_a_client_in_the_middle_of_its_housekeeping_is_no_failure(
    database: str, client: AsyncClient, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    maintain_as(observer, "perform pg_advisory_xact_lock(1)")
    observer.execute("select pg_advisory_lock(1)")
    keeper = AsyncClient(database, maintain_interval=0.01, listen=False, timeouts=None)
    await keeper.send("orders", 1)
    await until_async(
        observer,
        "select count(*) > 0 from pg_stat_activity"
        " where datname = current_database() and wait_event = 'advisory'",
    )
    async with AsyncTasks() as tasks:
        closing = tasks.start(keeper.close)
        with pytest.raises(ConnectionFailedError):
            await send_without_end(keeper)
        observer.execute("select pg_advisory_unlock(1)")
        await closing()
    assert [record for record in caplog.records if record.name == "spanmq"] == []


async def test_housekeeping_before_the_installation_is_no_failure(
    empty_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    of_others = (
        "select count(*) > 0 from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and state = 'idle'"
    )
    with psycopg.connect(empty_database, autocommit=True) as observer:
        async with AsyncClient(empty_database, maintain_interval=0.01, listen=False) as client:
            # It has asked what the database holds, again and again.
            await until_async(observer, f"{of_others} and query like '%spanmq.version%'")
            await client.install()
            await until_async(observer, f"{of_others} and query like '%upcoming_schedules%'")
    assert [record for record in caplog.records if "maintenance_failed" in record.getMessage()] == []
