"""A session of other software in autocommit: a batch of several calls is one transaction nevertheless."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from tests.client.test_outbox import (
    AsyncOpener,
    Opener,
    asynchronously,
    connect_asyncpg,
    django_connection,
    sessions,
)

from spanmq import errors
from spanmq.client import AsyncClient, Client
from spanmq.codec.body import RawJson


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database) as client:
        client.queues.create("orders")
        yield client


class Dbapi:
    """A connection of a driver that has nothing of psycopg's own, with rows by name."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.autocommit = connection.autocommit

    def cursor(self) -> Any:
        return self._connection.cursor(row_factory=dict_row)


@contextmanager
def dbapi_in_autocommit(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield Dbapi(connection)


@contextmanager
def django_in_autocommit(dsn: str) -> Iterator[Any]:
    with django_connection(dsn) as connection:
        connection.set_autocommit(True)
        yield connection
        connection.set_autocommit(False)


@contextmanager
def sqlalchemy_in_autocommit(dsn: str) -> Iterator[Any]:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), isolation_level="AUTOCOMMIT"
    )
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def sqlalchemy_session_in_autocommit(dsn: str) -> Iterator[Any]:
    with sqlalchemy_in_autocommit(dsn) as connection, Session(connection.engine) as session:
        yield session


@asynccontextmanager
async def asyncpg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    connection = await connect_asyncpg(dsn)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def sqlalchemy_asyncpg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda *_, **__: connect_asyncpg(dsn),
        isolation_level="AUTOCOMMIT",
    )
    try:
        async with AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


@asynccontextmanager
async def sqlalchemy_psycopg_in_autocommit(dsn: str) -> AsyncIterator[Any]:
    engine = create_async_engine(
        "postgresql+psycopg://",
        async_creator=lambda *_, **__: psycopg.AsyncConnection.connect(dsn),
        isolation_level="AUTOCOMMIT",
    )
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


def send_and_swallow(outbox: Client) -> None:
    with outbox.transaction() as within:
        within.send("orders", "lost")
        with suppress(errors.QueueNotFoundError):
            within.send("nothing", 1)


# Only the server notices half of a character, in the second of two calls.
SPOILT = [*range(1_500), RawJson('"\\ud800"')]


@pytest.mark.parametrize(
    "opener",
    [
        dbapi_in_autocommit,
        django_in_autocommit,
        sqlalchemy_in_autocommit,
        sqlalchemy_session_in_autocommit,
    ],
)
def test_batch_in_autocommit_is_sent_whole_or_not_at_all(
    database: str, opener: Opener, client: Client
) -> None:
    with opener(database) as session:
        outbox = Client(connection=session)
        with pytest.raises(errors.InvalidBodyError):
            outbox.send_batch("orders", SPOILT)
        assert client.queues.metrics("orders").length == 0
        outbox.send_batch("orders", range(1_500))
        assert client.queues.metrics("orders").length == 1_500
        with suppress(ZeroDivisionError), outbox.transaction() as within:
            with within.transaction() as inner:
                inner.send("orders", "rolled back")
            raise ZeroDivisionError
        with pytest.raises(errors.TransactionAbortedError):
            send_and_swallow(outbox)
        with outbox.transaction() as within:
            within.send("orders", "committed")
        assert client.queues.metrics("orders").length == 1_501
        first, second = outbox.receive("orders"), outbox.receive("orders")
        assert {settled.outcome for settled in outbox.ack([*first, *second])} == {"acked"}


@pytest.mark.parametrize(
    "opener", [asyncpg_in_autocommit, sqlalchemy_asyncpg_in_autocommit, sqlalchemy_psycopg_in_autocommit]
)
def test_asynchronous_batch_in_autocommit_is_sent_whole_or_not_at_all(
    database: str, opener: AsyncOpener, client: Client
) -> None:
    async def scenario() -> None:
        async with opener(database) as session:
            outbox = AsyncClient(connection=session)
            with pytest.raises(errors.InvalidBodyError):
                await outbox.send_batch("orders", SPOILT)
            assert client.queues.metrics("orders").length == 0
            await outbox.send_batch("orders", range(1_500))
            assert client.queues.metrics("orders").length == 1_500

    asynchronously(scenario)


def test_transaction_that_was_begun_by_hand_is_not_committed(database: str, client: Client) -> None:
    with django_in_autocommit(database) as connection, connection.cursor() as cursor:
        cursor.execute("begin")
        Client(connection=connection).send_batch("orders", range(1_500))
        cursor.execute("rollback")
    assert client.queues.metrics("orders").length == 0


# Out of it.


@sessions
def test_transaction_of_a_client_on_a_session_is_a_savepoint(
    database: str, opener: Opener, client: Client
) -> None:
    with opener(database) as session:
        outbox = Client(connection=session)
        for queue in ("orders", "nothing"):
            outbox.send("orders", "before")
            with suppress(errors.QueueNotFoundError), outbox.transaction() as within:
                within.send("orders", queue)
                with within.transaction() as inner:
                    inner.send(queue, "inner")
        with pytest.raises(errors.TransactionAbortedError):
            send_and_swallow(outbox)
        assert client.queues.metrics("orders").length == 0
    assert [message.body for message in client.peek("orders")] == ["before", "orders", "inner", "before"]


def test_raw_connection_of_sqlalchemy_is_one_of_its_driver(database: str, client: Client) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    connection = engine.raw_connection()
    Client(connection=connection).send_batch("orders", range(1_500))
    assert client.queues.metrics("orders").length == 0
    connection.commit()
    connection.close()
    engine.dispose()
    assert client.queues.metrics("orders").length == 1_500
