"""A database with a queue."""

import pytest
from tests.cli.program import do


@pytest.fixture
def orders(database: str) -> str:
    """The DSN of a database with an empty queue `orders`."""
    do(database, "select pgmq.create('orders')")
    return database
