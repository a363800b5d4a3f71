"""Clients for the tests of this folder, over spanmq and over upstream PGMQ, with an empty queue `orders`."""

from collections.abc import AsyncIterator

import pytest

from spanmq.client import AsyncClient


@pytest.fixture
async def client(database: str) -> AsyncIterator[AsyncClient]:
    """A client of a new database with spanmq."""
    async with AsyncClient(database, timeouts=None) as client:
        await client.queues.create("orders")
        yield client


@pytest.fixture
async def upstream(upstream_database: str) -> AsyncIterator[AsyncClient]:
    """A client of a new database with upstream PGMQ."""
    async with AsyncClient(upstream_database) as client:
        await client.queues.create("orders")
        yield client


@pytest.fixture(params=["client", "upstream"])
def common(request: pytest.FixtureRequest) -> AsyncClient:
    client: AsyncClient = request.getfixturevalue(request.param)
    return client
