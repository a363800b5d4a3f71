"""A queue in a transaction, a queue for sessions that race, and systems to show faults on."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, LiteralString

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.model.invariants import broken_invariants
from tests.sql.queue import Connection, Queue
from tests.sql.race.sessions import Race
from tests.sql.rights import ROLE, fill

from spanmq.client import Client
from spanmq.client._sync.admin import Tokens
from spanmq.testing import wait_until_waiting


class System:
    """A database with PGMQ 1.13, which has the faults that docs/guides/pgmq.md numbers, or with spanmq.

    Each fault is shown on PGMQ too, so that every test of one is known to be able to fail.
    """

    def __init__(self, dsn: str, *, is_upstream: bool) -> None:
        self.dsn = dsn
        self.is_upstream = is_upstream
        self._opened = ExitStack()
        self._threads = self._opened.enter_context(ThreadPoolExecutor(max_workers=4))

    def connect(self) -> Connection:
        """Open a session in autocommit mode; it is closed with the test."""
        connection = psycopg.connect(self.dsn, autocommit=True)
        self._opened.callback(connection.close)
        connection.execute(f"set statement_timeout = '{WAIT_SECONDS}s'".encode())
        connection.execute("set client_min_messages = warning")
        return connection

    def start(self, connection: Connection, query: LiteralString) -> Future[list[Any]]:
        """Run a query that may wait, beside the test. The future gives its rows."""
        return self._threads.submit(lambda: connection.execute(query).fetchall())

    def meets(self, connection: Connection, query: LiteralString) -> Future[list[Any]]:
        """Run a query that waits for a lock in PGMQ, and here for nobody; return when it waits, or has ended."""
        running = self.start(connection, query)
        if self.is_upstream:
            with psycopg.connect(self.dsn, autocommit=True) as observer:
                wait_until_waiting(observer, connection.info.backend_pid)
        else:
            running.result()
        return running

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(params=["upstream", "here"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    is_upstream = request.param == "upstream"
    dsn = request.getfixturevalue("upstream_database" if is_upstream else "database")
    opened = System(dsn, is_upstream=is_upstream)
    yield opened
    opened.close()


@pytest.fixture
def session(system: System) -> Connection:
    return system.connect()


@pytest.fixture
def orders(connection: Connection) -> Queue:
    """Return a queue in a transaction that is rolled back."""
    return Queue(connection)


@pytest.fixture
def jobs(connection: Connection) -> Connection:
    """Return a connection with a queue `jobs`, in a transaction that is rolled back."""
    connection.execute("select pgmq.create('jobs')")
    return connection


@pytest.fixture
def tokens(connection: Connection) -> Tokens:
    return Client(connection=connection).admin.tokens


@pytest.fixture
def race(database: str) -> Iterator[Race]:
    """Yield a queue `jobs` and sessions for it; whatever a test does, the invariants hold at its end."""
    with Race(database) as opened:
        yield opened
        assert broken_invariants(opened.main.connection) == []


@pytest.fixture
def queues(connection: Connection) -> Connection:
    """Queues `jobs` and `others` with all there can be in them, and a role without any right."""
    fill(connection)
    connection.execute(
        f"create role {ROLE}; create role spanmq_test_other; grant select on runs to {ROLE}".encode()
    )
    return connection
