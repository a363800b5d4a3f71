"""A database with a queue, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spanmq.client import Client


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """A client of a new database with an empty queue `orders`."""
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client
