# Generated from tests/client/_async/conftest.py by tools/generate_sync.py: change that file.

"""Clients for the tests of this folder, over spanmq and over upstream PGMQ, with an empty queue `orders`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spanmq.client import Client


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """A client of a new database with spanmq."""
    with Client(database, timeouts=None) as client:
        client.queues.create("orders")
        yield client


@pytest.fixture
def upstream(upstream_database: str) -> Iterator[Client]:
    """A client of a new database with upstream PGMQ."""
    with Client(upstream_database) as client:
        client.queues.create("orders")
        yield client


@pytest.fixture(params=["client", "upstream"])
def common(request: pytest.FixtureRequest) -> Client:
    """A client of each, for what PGMQ has too."""
    client: Client = request.getfixturevalue(request.param)
    return client
