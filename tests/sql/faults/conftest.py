"""Each fault of PGMQ 1.13 is shown on PGMQ, and that it is not here.

So every test is known to be able to fail. The faults have the numbers that docs/pgmq.md gives them.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, LiteralString

import psycopg
import pytest

Connection = psycopg.Connection[Any]
# What waits longer waits for ever. It is the time limit of statements that ought to wait for nobody.
WAIT_SECONDS = 60


class System:
    """A database with PGMQ, which has the faults, or with spanmq, which has not."""

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


def one(connection: Connection, query: LiteralString) -> Any:
    """Return the one value that a query gives."""
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def column(connection: Connection, query: LiteralString) -> list[Any]:
    """Return the first column of what a query gives."""
    return [row[0] for row in connection.execute(query).fetchall()]


def pages_touched(connection: Connection, query: LiteralString) -> int:
    """Return how many pages a query looks at, all its inner statements included. What it did is rolled back.

    The least of three: the first one also reads catalogues.
    """
    counts: list[int] = []
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            row = connection.execute(b"explain (analyze, buffers, format json) " + query.encode()).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return min(counts)
