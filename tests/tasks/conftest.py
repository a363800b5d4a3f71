"""A shop whose tasks are in a database of the test's own."""

from collections.abc import Iterator

import pytest
from tests.tasks import shop

from spanmq import Client


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
