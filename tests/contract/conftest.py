"""Each test of this folder goes through each door, to a queue of its own in a database that all share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from anyio.from_thread import start_blocking_portal
from service.tests.running import service
from tests.contract.adapters import ClientDoor, CommandDoor, HttpDoor, SqlDoor

from spanmq.client import AsyncClient, Client
from spanmq.testing import new_database, with_database

NUMBERS = count(1)
if TYPE_CHECKING:
    from tests.contract.door import Door


@pytest.fixture(scope="session")
def contract_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def sql_door(contract_database: str) -> Iterator[SqlDoor]:
    with psycopg.connect(contract_database, autocommit=True) as session:
        yield SqlDoor(session)


@pytest.fixture(scope="session")
def client_door(contract_database: str) -> Iterator[ClientDoor]:
    with Client(contract_database) as client:
        yield ClientDoor(client)


@pytest.fixture(scope="session")
def async_client_door(contract_database: str) -> Iterator[ClientDoor]:
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(AsyncClient(contract_database)) as client,
    ):
        yield ClientDoor.over(portal, client)


@pytest.fixture(scope="session")
def http_door(contract_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDoor]:
    folder: Path = tmp_path_factory.mktemp("contract")
    with service(contract_database, folder) as running, running.client() as http:
        yield HttpDoor(http)


@pytest.fixture(scope="session")
def command_door(contract_database: str) -> CommandDoor:
    return CommandDoor(contract_database)


@pytest.fixture(params=["sql", "client", "async_client", "http", "command"])
def door(request: pytest.FixtureRequest) -> Door:
    opened: Door = request.getfixturevalue(f"{request.param}_door")
    return opened


@pytest.fixture
def name(sql_door: SqlDoor) -> Iterator[Callable[[], str]]:
    """Return names of queues that no other test has; they are dropped afterwards."""
    names: list[str] = []

    def new() -> str:
        names.append(f"c{next(NUMBERS)}")
        return names[-1]

    yield new
    for each in reversed(names):
        sql_door.drop(each)


@pytest.fixture
def queue(sql_door: SqlDoor, name: Callable[[], str]) -> str:
    """A queue of the test's own."""
    made = name()
    sql_door.create(made)
    return made
