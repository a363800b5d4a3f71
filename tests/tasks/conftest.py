"""A shop whose tasks are in a database of the test's own."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from tests.tasks import shop

from spanmq import Client
from spanmq.tasks import Tasks


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """The shop's database, with its queues and a table that tasks write to."""
    shop.tasks.connect(database)
    shop.tasks.create_queues()
    shop.done.clear()
    with Client(database) as client:
        with client.transaction() as transaction:
            transaction.connection.execute("create table shipped (number int)")
        yield client
    shop.tasks.close()


@pytest.fixture
def own(client: Client, database: str) -> Iterator[Tasks]:
    """Tasks of the test's own for a queue of the shop's database."""
    tasks = Tasks("orders", dsn=database)
    yield tasks
    tasks.close()


@pytest.fixture
async def engines(database: str) -> AsyncIterator[tuple[Engine, AsyncEngine]]:
    """SQLAlchemy's engines, a plain and an asynchronous one."""
    url = "postgresql+psycopg://"
    plain = create_engine(url, creator=lambda: psycopg.connect(database))
    asynchronous = create_async_engine(url, async_creator=lambda: psycopg.AsyncConnection.connect(database))
    yield plain, asynchronous
    plain.dispose()
    await asynchronous.dispose()
