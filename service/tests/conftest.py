"""A service over a database; most tests share one, each with a queue of its own."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from service.tests.running import Running, service
from tests.cli.program import do

from spanmq.testing import new_database, with_database


@pytest.fixture(scope="session")
def service_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """The DSN of the database behind the service that tests share."""
    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def shared(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service without tokens, for tests that leave it as it is."""
    with service(service_database, tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture
def http(shared: Running) -> Iterator[httpx.Client]:
    with shared.client() as client:
        yield client


@pytest.fixture
def queue(service_database: str, request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    name = f"q{abs(hash(request.node.nodeid))}"
    do(service_database, f"select pgmq.create('{name}')")
    return name


@pytest.fixture
def orders(database: str) -> str:
    """The DSN of a database with an empty queue `orders`."""
    do(database, "select pgmq.create('orders')")
    return database


@pytest.fixture
def running(orders: str, tmp_path: Path) -> Iterator[Running]:
    """A service of the test's own, without tokens."""
    with service(orders, tmp_path) as started:
        yield started
