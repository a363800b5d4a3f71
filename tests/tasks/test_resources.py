"""What tasks get by type, and what a worker calls at its start and end."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from tests.tasks.shop import working

from spanmq import Client
from spanmq.errors import InvalidArgumentError, WorkerStartError
from spanmq.tasks import GIVEN, Tasks
from spanmq.testing import drain_async
from spanmq.worker import Worker


class Bank:
    name = "real"


class Clock: ...


def shop_of(database: str) -> tuple[Tasks, list[Any]]:
    own = Tasks("orders", dsn=database)
    log: list[Any] = []

    @own.resource
    async def bank() -> AsyncIterator[Bank]:
        log.append("open")
        yield Bank()
        log.append("close")

    @own.resource
    @contextmanager
    def clock() -> Iterator[Clock]:
        log.append("wind")
        yield Clock()

    @own.task
    async def pay(number: int, bank: Bank = GIVEN) -> None:
        log.append((number, bank.name))

    @own.task
    def charge(number: int, *, teller: Bank = GIVEN) -> None:
        log.append((number, teller.name))

    own.on_start(lambda: log.append("start"))

    @own.on_stop
    async def stop() -> None:
        log.append("stop")

    return own, log


async def test_resource_is_opened_once_for_all_tasks_and_closed_after_the_last(
    client: Client, database: str
) -> None:
    own, log = shop_of(database)
    async with working(own, concurrency=1) as outcomes:
        for number, task in enumerate(["pay", "charge", "pay"]):
            client.send("orders", {"task": task, "args": {"number": number}})
            assert (await outcomes.next()).outcome == "acked"
        client.send("orders", {"task": "pay", "args": {"number": 1, "bank": "sent"}})
        assert (await outcomes.next()).outcome == "dead"
    assert log == ["open", "start", (0, "real"), (1, "real"), (2, "real"), "stop", "close"]
    log.clear()
    client.send("orders", {"task": "pay", "args": {"number": 3}})
    assert await drain_async(own) == 1
    assert log == ["open", (3, "real"), "close"]
    await own.close_async()


async def test_worker_does_not_start_if_a_resource_or_a_function_fails(client: Client, database: str) -> None:
    log: list[str] = []

    def fail() -> None:
        raise ConnectionError("refused")

    worker = Worker("orders", lambda message: None, dsn=database)
    worker.on_stop(lambda: log.append("stop"))
    worker.on_start(fail)
    with pytest.raises(WorkerStartError, match=r"fail of on_start failed: ConnectionError: refused$"):
        await worker.work(signals=False)
    assert log == ["stop"]
    own = Tasks("orders", dsn=database)
    own.task(takes_bank)
    own.resource(kind=Bank)(fail)
    with pytest.raises(
        WorkerStartError, match=r"^the resource Bank could not be opened: ConnectionError: refused$"
    ):
        await own.worker().work(signals=False)


def takes_bank(bank: Bank = GIVEN) -> None: ...


def takes_anything(thing=GIVEN) -> None: ...  # type: ignore[no-untyped-def]


def test_parameter_without_a_resource_is_refused() -> None:
    own = Tasks("orders", dsn="postgresql://nowhere/x")
    own.task(takes_bank)
    with pytest.raises(
        InvalidArgumentError, match="no resource has the type Bank of the parameter 'bank' of task"
    ):
        own.worker()
    with pytest.raises(InvalidArgumentError, match="no worker passes 'thing'"):
        own.task(takes_anything)
    with pytest.raises(InvalidArgumentError, match="has no type"):
        own.resource(lambda: None)
    own.resource(kind=Bank)(lambda: nullcontext(Bank()))
    with pytest.raises(InvalidArgumentError, match="there are two resources of type Bank"):
        own.resource(Bank)
