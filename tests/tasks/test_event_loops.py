"""Sends from event loops that end: their connections end with them."""

import asyncio
import gc
import sys
import threading
import warnings
from collections.abc import Callable, Iterator

import psycopg
import pytest
import uvloop
from asgiref.sync import async_to_sync
from tests.patience import wait_until

from spanmq import AsyncClient
from spanmq.tasks import Tasks

ROUNDS = 5
OTHERS = (
    "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and backend_type = 'client backend'"
)

tasks = Tasks("loops")


@tasks.task
def ship(number: int) -> None: ...


async def send() -> None:
    await ship.send_async(1)


async def send_at_once() -> None:
    await asyncio.gather(*[ship.send_async(number) for number in range(8)])


async def send_and_wait() -> None:
    """Wait in vain, which makes a connection of its own that listens."""
    sent = await ship.send_async(1)
    with pytest.raises(TimeoutError):
        await sent.wait_async(0.01)


async def send_to_another_database() -> None:
    """Begin as a program does that calls `connect` while its loop runs."""
    await send()
    tasks.connect(str(tasks.clients.dsn) + " ")
    await send()


def send_by_asgiref() -> None:
    """Send as a view of Django does."""
    async_to_sync(ship.send_async)(1)


def in_thread() -> None:
    thread = threading.Thread(target=asyncio.run, args=[send()])
    thread.start()
    thread.join()


def in_uvloop() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(send())


def with_a_task_that_goes_on() -> None:
    async def begin() -> None:
        task = asyncio.create_task(ship.send_async(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(begin())


ENDED: dict[str, Callable[[], None]] = {
    "run": lambda: asyncio.run(send()),
    "at_once": lambda: asyncio.run(send_at_once()),
    "waiting": lambda: asyncio.run(send_and_wait()),
    "two_databases": lambda: asyncio.run(send_to_another_database()),
    "async_to_sync": send_by_asgiref,
    "thread": in_thread,
    "uvloop": in_uvloop,
    "unfinished": with_a_task_that_goes_on,
}


@pytest.fixture
def observer(database: str) -> Iterator[psycopg.Connection]:
    tasks.connect(database)
    tasks.create_queues()
    tasks.close()
    with psycopg.connect(database, autocommit=True) as connection:
        wait_until(lambda: others(connection) == 0)
        yield connection


def others(connection: psycopg.Connection) -> int:
    row = connection.execute(OTHERS).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("name", ENDED)
def test_connections_of_an_event_loop_end_with_it(name: str, observer: psycopg.Connection) -> None:
    gc.disable()  # which would end them, too, some time later
    try:
        for _ in range(ROUNDS):
            ENDED[name]()
        if name == "unfinished":
            # A connection that the pool got as it was cancelled may be in a cycle with the pool's traceback.
            with warnings.catch_warnings(action="ignore", category=ResourceWarning):
                gc.collect()
        wait_until(lambda: others(observer) == 0)
    finally:
        gc.enable()


def test_connection_of_an_event_loop_that_is_not_shut_down_ends_with_the_loop(
    observer: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its tasks complain that they can't end.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    for closes in (True, False):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(send())
        assert others(observer) == 1
        if closes:
            loop.close()
        del loop
        # One that is not closed is found twice: the first time it is to close the client.
        gc.collect()
        gc.collect()
        wait_until(lambda: others(observer) == 0)


def test_event_loop_sends_over_one_client(observer: psycopg.Connection) -> None:
    async def send_often() -> None:
        for _ in range(3):
            await send()
            assert others(observer) == 1
        await tasks.close_async()
        wait_until(lambda: others(observer) == 0)
        await send()
        await tasks.close_async()
        await tasks.close_async()

    asyncio.run(send_often())


def test_event_loop_ends_while_a_connection_is_being_made(observer: psycopg.Connection) -> None:
    async def begin() -> None:
        held_up = asyncio.Event()

        async def hold_up(_: object) -> None:
            held_up.set()
            await asyncio.Event().wait()

        client = AsyncClient(str(tasks.clients.dsn), on_connect=hold_up)
        receiving = asyncio.create_task(client.receive("loops"))
        await held_up.wait()
        assert not receiving.done()

    asyncio.run(begin())
