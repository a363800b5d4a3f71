"""Pytest fixtures for programs that use spanmq, and for spanmq itself. Always a real PostgreSQL.

Load them with `pytest -p spanmq.testing` (or in `addopts`). Then a test takes

    connection           a connection to a database with spanmq, in a transaction that is rolled back
    database             the DSN of a new database with spanmq, for tests that commit or need two sessions
    upstream_database    the same with upstream PGMQ instead (needs the package `pgmq`)
    empty_database       the same with nothing in it
    spanmq_server        the DSN of the server, for anything else

The server is the one named by SPANMQ_TEST_DSN (its role must be allowed to create databases), else a private
one, of the major version in SPANMQ_TEST_POSTGRES (18), which need not survive a crash. All workers of
pytest-xdist share it.
"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

# A database is copied in 8 ms with these and in 22 without. No test of durability may rely on this server.
# Autovacuum's snapshots would hold back, now and then, what a test waits for.
FAST_AND_FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "400",
}
MEMORY_FOLDER = Path("/dev/shm")
# A run of this project's own tests takes some hundred megabytes.
MEMORY_BYTES_MIN = 4 << 30
# What is waited for comes at once, but for a machine that stalls.
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.005
# On a busy machine a session may not get the processor for a while.
END_SECONDS = 60.0

Connection = psycopg.Connection[Any]


# What the controller of pytest-xdist started for its workers, and their DSN.
SHARED = pytest.StashKey[ExitStack]()
DSN = pytest.StashKey[str]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start one server for all workers of pytest-xdist, before the first of them."""
    config: pytest.Config = node.config
    if DSN not in config.stash:
        config.stash[SHARED] = ExitStack()
        config.stash[DSN] = config.stash[SHARED].enter_context(server())
    node.workerinput["spanmq_server"] = config.stash[DSN]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server that the workers shared."""
    if (shared := config.stash.get(SHARED, None)) is not None:
        shared.close()


@pytest.fixture(scope="session")
def spanmq_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """Yield the DSN of the server that the tests run on."""
    if (input_of_worker := getattr(pytestconfig, "workerinput", None)) is not None:
        yield input_of_worker["spanmq_server"]
        return
    with server() as dsn:
        yield dsn


@contextmanager
def server() -> Iterator[str]:
    """Yield the DSN of the server that SPANMQ_TEST_DSN names, else of a private one."""
    if named := os.environ.get("SPANMQ_TEST_DSN"):
        yield named
        return
    from spanmq import embedded

    version = int(os.environ.get("SPANMQ_TEST_POSTGRES", "18"))
    with embedded.temporary(version=version, settings=FAST_AND_FORGETFUL, parent=memory_folder()) as private:
        yield private.dsn


def memory_folder() -> Path | None:
    """Return a folder in memory with room for the tests' databases, None if there is none.

    To copy a database there takes a twentieth of the processor time that it takes on some disks.
    """
    with suppress(OSError):
        status = os.statvfs(MEMORY_FOLDER)
        if os.access(MEMORY_FOLDER, os.W_OK) and status.f_bavail * status.f_frsize >= MEMORY_BYTES_MIN:
            return MEMORY_FOLDER
    return None


@pytest.fixture(scope="session")
def spanmq_template(spanmq_server: str) -> Iterator[str]:
    """Give the name of a database with spanmq installed, from which others are copied."""
    from spanmq import schema

    with new_database(spanmq_server) as name:
        with psycopg.connect(with_database(spanmq_server, name), autocommit=True) as connection:
            schema.install(connection)
        yield name


@pytest.fixture(scope="session")
def upstream_template(spanmq_server: str) -> Iterator[str]:
    """Give the name of a database with upstream PGMQ installed, from which others are copied."""
    pgmq = pytest.importorskip("pgmq")
    with new_database(spanmq_server) as name:
        with psycopg.connect(with_database(spanmq_server, name), autocommit=True) as connection:
            connection.execute(pgmq.get_embedded_install_sql())
        yield name


@pytest.fixture
def empty_database(spanmq_server: str) -> Iterator[str]:
    """Give the DSN of a new, empty database; it is dropped after the test."""
    with new_database(spanmq_server) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """Give the DSN of a new database with spanmq installed; it is dropped after the test."""
    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def upstream_database(spanmq_server: str, upstream_template: str) -> Iterator[str]:
    """Give the DSN of a new database with upstream PGMQ installed; it is dropped after the test."""
    with new_database(spanmq_server, template=upstream_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture(scope="session")
def shared_database(spanmq_server: str, spanmq_template: str) -> Iterator[str]:
    """Give the DSN of the database in which the tests of `connection` roll back."""
    with new_database(spanmq_server, template=spanmq_template) as name:
        yield with_database(spanmq_server, name)


@pytest.fixture
def connection(shared_database: str) -> Iterator[Connection]:
    """Give a connection in a transaction that is rolled back after the test; to commit in it is an error."""
    with psycopg.connect(shared_database) as opened, opened.transaction(force_rollback=True):
        yield opened


def wait_until_waiting(connection: Connection, pid: int, *, timeout: float = WAIT_SECONDS) -> None:
    """Return as soon as the session with this process id (`connection.info.backend_pid`) waits for a lock.

    Raises AssertionError when it does not within `timeout` seconds, saying what it does instead.
    """
    deadline = time.monotonic() + timeout
    while True:
        # Within a transaction a session that connected after the first look would never be seen.
        connection.execute("select pg_stat_clear_snapshot()")
        row = connection.execute(
            "select state, wait_event_type, wait_event, query from pg_stat_activity where pid = %s", [pid]
        ).fetchone()
        if row is not None and row[1] == "Lock":
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"session {pid} did not wait for a lock within {timeout:g} s; it is {row}")
        time.sleep(POLL_SECONDS)


@contextmanager
def new_database(server: str, *, template: str | None = None) -> Iterator[str]:
    """Make a database, yield its name, and drop it with whatever is still connected to it.

    Nobody may be connected to the template; without one the database is empty.
    """
    name = f"spanmq_test_{uuid.uuid4().hex[:16]}"
    statement = sql.SQL("create database {} template {}").format(
        sql.Identifier(name), sql.Identifier(template or "template0")
    )
    with psycopg.connect(server, autocommit=True) as connection:
        if connection.info.server_version >= 150000 and is_forgetful(connection):
            # Copying files means two checkpoints: with fsync the slower way, without it the faster.
            statement += sql.SQL(" strategy file_copy")
        connection.execute(statement)
    try:
        yield name
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            # By force the server ends sessions, too, but waits for no longer than five seconds.
            connection.execute(
                "select pg_terminate_backend(pid, %s) from pg_stat_activity where datname = %s",
                [round(END_SECONDS * 1000), name],
            )
            connection.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
            )


def is_forgetful(connection: Connection) -> bool:
    """Tell whether the server runs without fsync."""
    row = connection.execute("select current_setting('fsync')").fetchone()
    return row is not None and row[0] == "off"


def with_database(server: str, name: str) -> str:
    """Return the DSN of another database on the same server, as an address if it was one."""
    if "://" not in server:
        return make_conninfo(server, dbname=name)
    return urlunsplit(urlsplit(server)._replace(path=f"/{quote(name, safe='')}"))
