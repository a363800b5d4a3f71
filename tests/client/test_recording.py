"""The recording of what clients do: as it was, in the words of a history."""

import asyncio
from pathlib import Path

import psycopg
import pytest
from lab.bench.history import read
from lab.bench.history.recording import recording

from spanmq import AsyncClient, Client, Message


def test_calls_of_clients_are_recorded_in_the_words_of_a_history(client: Client, tmp_path: Path) -> None:
    client.queues.create("others")
    with recording(tmp_path, "one", "orders"):
        client.send_batch("orders", [1, '"{,}"', 3, 4], group=["a", None, '"b\\', None])
        client.send("others", 1)
        one, two, three, four = client.receive("orders", 4, lease=30)
        lease = one.lease_id
        client.extend([one, two], 60)
        client.ack(one)
        client.nack(two, "first", retry_in=0)
        client.nack(three, "last", category="PERMANENT")
        client.release(four)
        client.queues.metrics("orders")
    calls = [(call.verb, call.groups, call.ids, call.got) for call in read(tmp_path)]
    assert calls == [
        ("send", ["a", None, '"b\\', None], [], [1, 2, 3, 4]),
        ("receive", [], [], [[each, lease] for each in (1, 2, 3, 4)]),
        ("extend", [], [1, 2], [1, 2]),
        ("settle", [], [1], [1]),
        ("free", [], [2], [2]),
        ("settle", [], [2], []),
        ("free", [], [3], []),
        ("settle", [], [3], [3]),
        ("free", [], [4], [4]),
        ("count", [], [], 2),
    ]


def received(client: Client) -> Message:
    [message] = client.receive("orders")
    return message


def test_calls_in_a_transaction_have_happened_when_it_has_committed(client: Client, tmp_path: Path) -> None:
    client.send_batch("orders", [1, 2])

    def fail() -> None:
        with client.transaction() as transaction:
            transaction.ack(received(client))
            raise ZeroDivisionError

    with recording(tmp_path, "one", "orders"):
        with client.transaction() as transaction:
            transaction.ack(received(client))
            [settling] = [call for call in read(tmp_path) if call.verb == "settle"]
            assert not settling.is_answered
        with pytest.raises(ZeroDivisionError):
            fail()
    assert [(call.verb, call.got) for call in read(tmp_path) if call.verb == "settle"] == [("settle", [1])]


def test_calls_that_a_client_runs_as_one_happen_together(
    client: Client, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", [1, 2])
    with recording(tmp_path, "one", "orders"), psycopg.connect(database, autocommit=True) as connection:
        own = Client(connection=connection)
        first, second = received(own), received(own)
        # Of two leases: a call for each, in one transaction.
        own.ack([first, second])
    assert [(call.verb, call.got) for call in read(tmp_path) if call.verb == "settle"] == [
        ("settle", [1]),
        ("settle", [2]),
    ]


def test_calls_that_an_async_client_runs_as_one_happen_together(
    client: Client, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", [1, 2])

    async def handle() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
            own = AsyncClient(connection=connection)
            await own.ack([*await own.receive("orders"), *await own.receive("orders")])

    with recording(tmp_path, "one", "orders"):
        asyncio.run(handle())
    assert [call.got for call in read(tmp_path) if call.verb == "settle"] == [[1], [2]]


def test_calls_in_a_savepoint_happen_with_its_transaction(client: Client, tmp_path: Path) -> None:
    client.send_batch("orders", [1, 2, 3])

    def fail(transaction: Client) -> None:
        with transaction.transaction():
            transaction.ack(received(transaction))
            raise ZeroDivisionError

    with recording(tmp_path, "one", "orders"), client.transaction() as transaction:
        with transaction.transaction():
            transaction.ack(received(transaction))
        with pytest.raises(ZeroDivisionError):
            fail(transaction)
        transaction.ack(received(transaction))
        assert not any(call.is_answered for call in read(tmp_path))
    assert [call.got for call in read(tmp_path) if call.verb == "settle"] == [[1], [2]]


def test_calls_in_a_transaction_of_the_caller_are_undecided(
    client: Client, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", [1, 2])
    with recording(tmp_path, "one", "orders"), psycopg.connect(database) as connection:
        own = Client(connection=connection)
        own.ack([received(own), received(own)])
    assert [call.verb for call in read(tmp_path)] == ["receive", "receive", "settle", "settle"]
    assert not any(call.is_answered for call in read(tmp_path))


def test_extension_is_of_the_messages_that_the_lease_still_holds(client: Client, tmp_path: Path) -> None:
    client.send_batch("orders", [1, 2])
    with recording(tmp_path, "one", "orders"):
        messages = client.receive("orders", 2)
        client.delete("orders", 1)
        client.extend(messages, 60)
    assert [(call.ids, call.got) for call in read(tmp_path) if call.verb == "extend"] == [([1, 2], [2])]
