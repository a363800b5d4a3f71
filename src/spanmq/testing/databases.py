"""Servers and databases for tests. Always a real PostgreSQL."""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg
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
# The events waited for happen at once, unless the machine stalls.
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.005
# On a busy machine a session may not get the processor for a while.
END_SECONDS = 60.0

Connection = psycopg.Connection[Any]


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
    """Return a folder in memory with room for the tests' databases, or None.

    Copying a database there takes a twentieth of the CPU time that it takes on some disks.
    """
    with suppress(OSError):
        status = os.statvfs(MEMORY_FOLDER)
        if os.access(MEMORY_FOLDER, os.W_OK) and status.f_bavail * status.f_frsize >= MEMORY_BYTES_MIN:
            return MEMORY_FOLDER
    return None


def wait_until_waiting(connection: Connection, pid: int, *, timeout: float = WAIT_SECONDS) -> None:
    """Return as soon as the session with the process id `pid` (`connection.info.backend_pid`) waits for a lock.

    The `connection` is another one, to the same server. Raises AssertionError when it does not within `timeout`
    seconds, saying what it does instead.
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
    """Create a database on a `server` (a DSN), yield its name, and drop it with whatever is still connected to it.

    It is a copy of the database `template`, to which nobody may be connected; without one it is empty. Raises
    psycopg.Error if the server can't be reached or refuses it.
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
    """Return whether the server runs without fsync."""
    row = connection.execute("select current_setting('fsync')").fetchone()
    return row is not None and row[0] == "off"


def with_database(server: str, name: str) -> str:
    """Return the DSN of the database `name` on the `server` of another DSN, as an address if that was one.

    Raises psycopg.ProgrammingError, or ValueError for an address, if the other DSN cannot be read.
    """
    if "://" not in server:
        return make_conninfo(server, dbname=name)
    return urlunsplit(urlsplit(server)._replace(path=f"/{quote(name, safe='')}"))
