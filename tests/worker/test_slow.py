"""Handlers that take unusually long: named while they run, with their stacks for a role that asks."""

import asyncio
import threading
from typing import Any

import psycopg
import pytest
from tests.client.concurrency import until, until_async
from tests.patience import WAIT_SECONDS
from tests.worker.running import working

from spanmq import Client, Message
from spanmq.errors import NotFoundError
from spanmq.model import RunningHandler
from spanmq.tasks import Tasks
from spanmq.worker.event import HandlerSlow, MessageSettled
from spanmq.worker.measures import Measures
from spanmq.worker.observing.usual import UsualTimes

SLOW = "select jsonb_array_length(slow) = {} from spanmq.list_workers()"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Stuck:
    """Handlers that wait, as plain functions and as coroutines, until they may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.has_begun = threading.Event()

    def plain(self, message: Message) -> None:
        self.wait_here()

    def wait_here(self) -> None:
        self.has_begun.set()
        self.may_end.wait()

    async def coroutine(self, message: Message) -> None:
        await self.await_here()

    async def await_here(self) -> None:
        await asyncio.to_thread(self.may_end.wait)


@pytest.mark.parametrize(("kind", "line"), [("plain", "in wait_here"), ("coroutine", "in await_here")])
def test_handler_near_its_limit_is_named_and_shows_its_stack(
    client: Client, database: str, observer: psycopg.Connection[Any], kind: str, line: str
) -> None:
    stuck, measures = Stuck(), Measures()

    def slow() -> float | None:
        return measures.registry.get_sample_value("spanmq_worker_handlers_slow", {"queue": "orders"})

    # A handler is near its limit of 600 seconds from the first moment.
    settings: dict[str, Any] = {"handler_timeout": 600.0, "slow_share": 1e-6, "name": "w/1"}
    with working(database, getattr(stuck, kind), observers=[measures], **settings) as record:
        try:
            sent = client.send("orders", 1)
            [event] = record.wait(HandlerSlow)
            assert (event.message_id, event.attempt, event.limit, event.usual) == (sent, 1, 600.0, None)
            until(observer, SLOW.format(1))
            [report] = client.health.workers("orders")
            assert [(each.message_id, each.task, each.stack) for each in report.slow] == [(sent, None, None)]
            assert slow() == 1
            client.admin.ask_stacks("orders", "w/1")
            until(observer, "select spanmq.get_stacks('orders', 'w/1') is not null")
            found = client.admin.get_stacks("orders", "w/1")
            assert found is not None
            [handler] = found
            assert isinstance(handler, RunningHandler)
            assert line in str(handler.stack)
            # It begins with the handler.
            assert str(handler.stack).splitlines()[0].endswith(f"in {kind}")
        finally:
            stuck.may_end.set()
        record.wait(MessageSettled)
        assert len(record.of(HandlerSlow)) == 1
        assert slow() == 0
        until(observer, SLOW.format(0))


async def test_task_in_a_thread_beside_coroutines_shows_the_stack_of_its_thread(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    tasks, stuck = Tasks("orders", dsn=database), Stuck()

    @tasks.task
    async def other() -> None: ...

    @tasks.task
    def ship() -> None:
        stuck.wait_here()

    async with tasks.running(name="w/1", observers=[]):
        try:
            ship.send()
            await asyncio.to_thread(stuck.has_begun.wait, WAIT_SECONDS)
            await until_async(observer, "select count(*) = 1 from spanmq.list_workers()")
            client.admin.ask_stacks("orders", "w/1")
            await until_async(observer, "select spanmq.get_stacks('orders', 'w/1') is not null")
            [found] = client.admin.get_stacks("orders", "w/1") or []
            assert found.task == "ship"
            assert "in wait_here" in str(found.stack)
        finally:
            stuck.may_end.set()
    tasks.close()


async def test_task_that_takes_longer_than_99_of_100_is_named(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    tasks = Tasks("orders", dsn=database)
    may_end = asyncio.Event()

    @tasks.task
    async def ship(number: int) -> None:
        if number:
            await may_end.wait()

    slow: asyncio.Queue[HandlerSlow] = asyncio.Queue()

    def observe(event: object) -> None:
        if isinstance(event, HandlerSlow):
            slow.put_nowait(event)

    async with tasks.running(observers=[observe], slow_after=0.001):
        tasks.send_many([ship.call(0)] * 200)
        # The worker knows what is usual from what it has reported.
        await until_async(observer, "select coalesce(sum(n), 0) = 200 from spanmq_core.task_time")
        await ship.send_async(1)
        async with asyncio.timeout(WAIT_SECONDS):
            event = await slow.get()
        assert (event.task, event.limit) == ("ship", None)
        assert event.usual is not None
        assert event.usual < event.seconds
        may_end.set()
    tasks.close()


def test_what_is_usual_is_known_from_a_hundred_on_and_forgets() -> None:
    times = UsualTimes()
    times.record([("ship", 10, 90), ("ship", 20, 9)])
    assert times.seconds("ship") is None
    times.record([("ship", 10, 1000), ("mail", 0, 100)])
    assert times.seconds("ship") == 2**5 / 1000
    assert times.seconds("mail") == 0.001
    assert times.seconds(None) is None
    for _ in range(10):
        times.record([("ship", 30, 60_000)])
    assert times.seconds("ship") == 2**15 / 1000


def test_worker_that_does_not_run_is_not_asked(client: Client) -> None:
    with pytest.raises(NotFoundError, match="no worker 'w/1' is running for orders"):
        client.admin.ask_stacks("orders", "w/1")
    assert client.admin.get_stacks("orders", "w/1") is None
