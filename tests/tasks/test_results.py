"""Waiting for a task: its result, its failure, and the time."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from tests.patience import wait_until
from tests.tasks.shop import working

from spanmq import Client
from spanmq.errors import InvalidArgumentError, TaskFailedError
from spanmq.tasks import GIVEN, Call, Sent, Tasks

sums = Tasks("orders")


@dataclass
class Sum:
    total: int


@sums.task(store_result=True)
async def add(a: int, b: int) -> Sum:
    return Sum(a + b)


@sums.task(store_result=60)
def add_plain(a: int, b: int, connection: psycopg.Connection[Any] = GIVEN) -> int:
    return a + b


@sums.task
async def forget(a: int) -> int:
    return a


@sums.task(store_result=True)
async def go_on() -> Call:
    return add.call(1, 2)


@sums.task(store_result=True)
async def fail(length: int) -> str:
    return "x" * length


@pytest.fixture
def client(client: Client, database: str) -> Iterator[Client]:
    sums.connect(database)
    yield client
    sums.close()


async def test_wait_returns_the_result(client: Client) -> None:
    async with working(sums):
        sent = await add.send_async(1, 2)
        assert await sent.wait_async(60) == {"total": 3}
        assert await asyncio.to_thread(lambda: add_plain.send(3, 4).wait()) == 7
        assert await (await forget.send_async(1)).wait_async() is None
        assert await (await go_on.send_async()).wait_async() is None
        with pytest.raises(TaskFailedError, match="at most 65536 bytes"):
            await (await fail.send_async(70_000)).wait_async()
    [letter] = client.dead_letters.list("orders")
    assert letter.category == "PERMANENT"


async def test_as_many_results_are_stored_at_once_as_tasks_run(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    many = 8
    calls: list[int] = []
    stored = Tasks("orders", dsn=database)

    @stored.task(store_result=True)
    async def work(number: int) -> int:
        calls.append(number)
        return number

    waiting = (
        "select count(*) from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and query ~ '[.]ack_with_result'"
    )
    with psycopg.connect(database) as other:
        other.execute("lock table spanmq_core.result")
        async with working(stored, concurrency=many, timeouts=None) as outcomes:
            await stored.send_many_async([work.call(number) for number in range(many)])
            await asyncio.to_thread(wait_until, lambda: observer.execute(waiting).fetchone() == (many,))
            other.rollback()
            assert await outcomes.all(many) == ["acked"] * many
    assert sorted(calls) == [*range(many)]
    stored.close()


def test_wait_is_over(client: Client) -> None:
    sent = forget.send(1)
    with pytest.raises(TimeoutError):
        sent.wait(0.01)
    client.delete("orders", sent.message_id)
    assert sent.wait() is None
    with pytest.raises(InvalidArgumentError):
        Sent("orders", 1).wait()
