"""Batches: a task that is sent once, when all messages of others are settled."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.tasks.shop import done, working

from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import GIVEN, BatchCall, BatchResult, Call, Reject, Result, Tasks
from spanmq.testing import drain

books = Tasks("orders")


@books.task
async def read(number: int) -> None:
    if number < 0:
        raise Reject("a number below 0")
    done.append(number)


@books.task(queue="mail")
def read_plain(number: int) -> None:
    done.append(number)


@books.task
async def report(kind: str = "daily", *, batch: BatchResult = GIVEN) -> None:
    done.append((kind, batch.total, batch.done, batch.dead))


@books.task
async def divide(number: int, connection: psycopg.AsyncConnection[Any] = GIVEN) -> BatchCall:
    return books.batch([read.call(each) for each in range(number)], report)


@books.task
def divide_plain(number: int) -> list[BatchCall]:
    return [books.batch([read_plain.call(each)], report.call(str(each))) for each in range(number)]


@books.task(store_result=True)
async def square(number: int) -> int | Call:
    if number < 0:
        raise Reject("a number below 0")
    return number * number if number else read.call(0)


@books.task(queue="mail", store_result=True, unique=True)
def double(number: int) -> int:
    return 2 * number


@books.task
async def collect(results: list[Result] = GIVEN) -> None:
    done.append([(each.queue, each.state, each.value, each.error) for each in results])


@books.task
def collect_plain(kind: str, *, batch: BatchResult = GIVEN, results: list[Result] = GIVEN) -> None:
    done.append((kind, batch.dead, [each.value for each in results]))


@pytest.fixture
def client(client: Client, database: str) -> Iterator[Client]:
    books.connect(database)
    yield client
    books.close()


async def test_batch_ends_once_with_its_counts(client: Client) -> None:
    calls = [read.call(1), read_plain.call(2), read.call(-1)]
    async with working(books) as outcomes:
        sent = books.batch(calls, report.call("weekly")).send()
        assert await outcomes.all(4) == ["acked"] * 3 + ["dead"]
        again = await books.batch(calls[:2], then=report).send_async()
        assert await outcomes.all(3) == ["acked"] * 3
        assert await again.messages[0].wait_async() is None
    assert [each.queue for each in sent.messages] == ["orders", "mail", "orders"]
    assert [each for each in done if isinstance(each, tuple)] == [("weekly", 3, 2, 1), ("daily", 2, 2, 0)]
    ended = client.batches.list()
    assert [(each.total, each.done, each.dead, each.unsettled) for each in ended] == [
        (2, 2, 0, 0),
        (3, 2, 1, 0),
    ]
    assert ended[1].batch_id == sent.batch_id


def test_batch_is_a_step_of_a_task(client: Client) -> None:
    divide.send(3)
    divide_plain.send(2)
    assert drain(books) == 2 + 3 + 1 + 2 + 2
    assert sorted(each for each in done if isinstance(each, tuple)) == [
        ("0", 1, 1, 0),
        ("1", 1, 1, 0),
        ("daily", 3, 3, 0),
    ]


def test_batch_is_sent_in_the_caller_s_transaction(client: Client, database: str) -> None:
    with psycopg.connect(database) as connection:
        books.batch([read.call(1)], report).send(connection=connection)
        connection.rollback()
        books.batch([], report).send(connection=connection)
    assert [(each.total, each.ended_at) for each in client.batches.list("orders")] == [(0, None)]
    while client.admin.maintain():
        pass
    assert drain(books) == 1
    assert done == [("daily", 0, 0, 0)]


@pytest.mark.parametrize("then", [collect.call(), collect_plain.call("plain")])
def test_the_task_that_follows_has_the_results_in_the_order_of_the_calls(client: Client, then: Call) -> None:
    earlier = double.send(3)
    drain(books)
    calls = [double.call(3), square.call(-1), square.call(2), double.call(5), square.call(0), double.call(5)]
    sent = books.batch(calls, then).send()
    assert sent.messages[0] == earlier
    assert sent.messages[3] == sent.messages[5]
    drain(books, raises=False)
    found = [
        ("mail", "stored", 6, None),
        ("orders", "dead", None, "a number below 0"),
        ("orders", "stored", 4, None),
        ("mail", "stored", 10, None),
        ("orders", "missing", None, None),
        ("mail", "stored", 10, None),
    ]
    assert done[-1] == (found if then.task == "collect" else ("plain", 1, [each[2] for each in found]))
    [batch] = client.batches.list()
    assert not batch.headers


async def test_worker_of_plain_tasks_reads_results(own: Tasks) -> None:
    @own.task(store_result=True)
    def work(number: int) -> int:
        return number + 1

    @own.task
    def end(results: list[Result] = GIVEN) -> None:
        done.append([each.value for each in results])

    async with working(own) as outcomes:
        await own.batch([work.call(each) for each in range(3)], end).send_async()
        assert await outcomes.all(4) == ["acked"] * 4
    assert done == [[1, 2, 3]]


def test_batch_without_results_is_refused_where_they_are_taken(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="task 'read' stores none"):
        books.batch([square.call(1), read.call(1)], collect)
    with pytest.raises(InvalidArgumentError, match="at most 10000 calls"):
        books.batch([square.call(1)] * 10_001, collect)
    forged = [
        {},
        {"queues": ["orders"], "ids": [[0, 1, 10**12], [0, 1, -(10**12)]]},
        {"queues": [], "ids": [[0, 1, 1]]},
        {"queues": [[]], "ids": [[0, 1, 1]]},
    ]
    for header in forged:
        collect.using(headers={"x-spanmq-calls": header}).send()
    assert drain(books, raises=False) == len(forged)
    assert len(client.dead_letters.list("orders")) == len(forged)


def test_results_of_a_dropped_queue_are_missing(client: Client) -> None:
    collect.using(headers={"x-spanmq-calls": {"queues": ["dropped"], "ids": [[0, 7, 2]]}}).send()
    assert drain(books) == 1
    assert done == [[("dropped", "missing", None, None)] * 2]


def test_what_is_not_the_end_of_a_batch(client: Client) -> None:
    with pytest.raises(InvalidArgumentError):
        books.batch([], report.using(delay=1).call())
    report.send()
    assert drain(books, raises=False) == 1
    [letter] = client.dead_letters.list("orders")
    assert "takes a batch" in (letter.error or "")
