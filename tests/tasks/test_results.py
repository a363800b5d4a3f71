"""Waiting for a task: its result, its failure, and the time."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.tasks.shop import working

from spanmq import Client
from spanmq.codec.encryption import Unopened
from spanmq.errors import InvalidArgumentError, ResultNotStoredError, TaskFailedError
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


@sums.task(store_result=True)
async def lie() -> int:
    text: Any = "seven"
    return text  # type: ignore[no-any-return]


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
        total: Sum = await sent.wait_async(WAIT_SECONDS)  # a type checker knows it
        assert total == Sum(3)
        sum_: int = await asyncio.to_thread(lambda: add_plain.send(3, 4).wait())
        assert sum_ == 7
        with pytest.raises(ResultNotStoredError, match="does not fit the type in the signature"):
            await (await lie.send_async()).wait_async()
        assert await (await forget.send_async(1)).wait_async() is None
        with pytest.raises(TaskFailedError, match="left no result"):
            await (await go_on.send_async()).wait_async()
        with pytest.raises(ResultNotStoredError, match="at most 65536 bytes"):
            await (await fail.send_async(70_000)).wait_async()
    assert client.dead_letters.list("orders") == []


async def test_results_of_a_batch_are_stored_in_one_statement(
    client: Client, own: Tasks, observer: psycopg.Connection[Any]
) -> None:
    many = 8

    @own.task(store_result=True)
    async def work(number: int) -> object:
        # 1e200 is short in Python's JSON and long in PostgreSQL's: only the server finds that it is too large.
        return [1e200] * 1_000 if number == 3 else number

    await own.send_many_async([work.call(4)] * many)
    async with working(own, concurrency=many) as outcomes:
        await outcomes.all(many)
        [transactions] = observer.execute(
            "select count(distinct xmin::text) from spanmq_core.result"
        ).fetchone() or (many,)
        assert transactions < many
        ids = [each.message_id for each in await own.send_many_async([work.call(n) for n in range(many)])]
        assert await outcomes.all(many) == ["acked"] * many
    stored_results = client.results.get("orders", ids)
    refused = stored_results.pop(ids[3])
    assert stored_results == {ids[n]: n for n in range(many) if n != 3}
    assert isinstance(refused, Unopened)
    assert "at most 65536 bytes" in refused.error.message
    [listed] = client.results.list("orders", ids[3])
    assert (listed.state, listed.value) == ("unstored", None)
    assert listed.error == refused.error.message


def test_wait_is_over(client: Client) -> None:
    sent = forget.send(1)
    with pytest.raises(TimeoutError):
        sent.wait(0.01)
    client.delete("orders", sent.message_id)
    assert sent.wait() is None
    stored = add_plain.send(3, 4)
    client.delete("orders", stored.message_id)
    with pytest.raises(TaskFailedError, match="left no result"):
        stored.wait()
    with pytest.raises(InvalidArgumentError):
        Sent("orders", 1).wait()
