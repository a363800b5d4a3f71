"""Pytest fixtures for programs that use spanmq, loaded by pytest itself. Always a real PostgreSQL.

The server is the one named by SPANMQ_TEST_DSN (its role must be allowed to create databases), else a private
one, of the major version in SPANMQ_TEST_POSTGRES (18), which need not survive a crash. All workers of
pytest-xdist share it. Everything is imported at the first use: other tests pay nothing for this plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import psycopg

    from spanmq.client import Client
    from spanmq.tasks import Tasks

# The server that the controller of pytest-xdist started for its workers, and their DSN.
SHARED = pytest.StashKey[ExitStack]()
DSN = pytest.StashKey[str]()
# The DSN of the server in the input of a worker of pytest-xdist.
INPUT = "spanmq_server"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the server's DSN to a worker of pytest-xdist, if the run uses one."""
    config: pytest.Config = node.config
    if not config.getini("spanmq_shared_server"):
        return
    if DSN not in config.stash:
        from spanmq.testing.databases import server

        config.stash[SHARED] = ExitStack()
        config.stash[DSN] = config.stash[SHARED].enter_context(server())
    node.workerinput[INPUT] = config.stash[DSN]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the setting of the project."""
    parser.addini(
        "spanmq_shared_server",
        "start one PostgreSQL server for all workers of pytest-xdist, before the first test",
        type="bool",
        default=False,
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server that the workers shared."""
    if (shared := config.stash.get(SHARED, None)) is not None:
        shared.close()


@pytest.fixture(scope="session")
def spanmq_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """Yield the DSN of the server that the tests run on."""
    input_of_worker = getattr(pytestconfig, "workerinput", {})
    if INPUT in input_of_worker:
        yield input_of_worker[INPUT]
        return
    from spanmq.testing.databases import server

    with server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def spanmq_template(spanmq_server: str) -> Iterator[str]:
    """Yield the name of a database with spanmq installed, from which others are copied."""
    import psycopg

    from spanmq import schema
    from spanmq.testing.databases import new_database, with_database

    with new_database(spanmq_server) as name:
        with psycopg.connect(with_database(spanmq_server, name), autocommit=True) as connection:
            schema.install(connection)
        yield name


@pytest.fixture
def spanmq_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """Yield the DSN of a new database with spanmq installed; it is dropped after the test."""
    from spanmq.testing.databases import new_database, with_database

    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def spanmq_shared_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """Yield the DSN of the database in which the tests of `spanmq_connection` roll back."""
    from spanmq.testing.databases import new_database, with_database

    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def spanmq_connection(spanmq_shared_database: str) -> Iterator[psycopg.Connection[Any]]:
    """Yield a connection in a transaction that is rolled back after the test; to commit in it is an error."""
    import psycopg

    with psycopg.connect(spanmq_shared_database) as opened, opened.transaction(force_rollback=True):
        yield opened


@pytest.fixture
def spanmq_client(spanmq_database: str) -> Iterator[Client]:
    """Yield a client of the test's database."""
    from spanmq.client import Client

    with Client(spanmq_database) as client:
        yield client


@pytest.fixture
def spanmq_tasks(spanmq_database: str) -> Iterator[Callable[[Tasks], Tasks]]:
    """Yield a function that has tasks use the test's database, with their queues in it."""
    connected: list[Tasks] = []

    def connect(tasks: Tasks) -> Tasks:
        tasks.connect(spanmq_database)
        tasks.create_queues()
        connected.append(tasks)
        return tasks

    yield connect
    for tasks in connected:
        tasks.close()
