"""Batches: a task that is sent once, when all messages of others are settled."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.tasks.shop import done, working

from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import GIVEN, BatchCall, BatchResult, Reject, Tasks
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


def test_what_is_not_the_end_of_a_batch(client: Client) -> None:
    with pytest.raises(InvalidArgumentError):
        books.batch([], report.using(delay=1).call())
    report.send()
    assert drain(books, raises=False) == 1
    [letter] = client.dead_letters.list("orders")
    assert "takes a batch" in (letter.error or "")
