"""The server of a run, a private PostgreSQL 18 of the product's own or one that the user names; its programs."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from lab.bench import database

if TYPE_CHECKING:
    from spanmq.embedded import TemporaryServer

NAME = "spanmq_bench_fresh"

# As a careful operator sets a small server; everything else is as in the embedded server, autovacuum on. With
# these no checkpoint falls into a run of seconds.
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "250",
    # PGMQ's metrics_all() locks what it reads of 10,000 queues.
    "max_locks_per_transaction": "256",
}


@contextmanager
def serving(dsn: str | None) -> Iterator[str]:
    """Yield the DSN of the server to measure on; a private one is stopped after the block."""
    if dsn is not None:
        yield dsn
        return
    with private() as server:
        yield server.dsn


@contextmanager
def private(**settings: str) -> Iterator[TemporaryServer]:
    """Run a private server with some settings of its own, which is stopped after the block."""
    from spanmq import embedded

    with embedded.temporary(version=18, settings=SETTINGS | settings) as server:
        yield server


@contextmanager
def fresh(dsn: str) -> Iterator[str]:
    """Yield the DSN of a new database; drop it after the block."""
    database.drop(dsn, NAME)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {NAME}".encode())
    try:
        yield psycopg.conninfo.make_conninfo(dsn, dbname=NAME)
    finally:
        database.drop(dsn, NAME)


def output_of(what: str, module: str, *arguments: str) -> str:
    """Run a module in a process of its own, and return what it prints; `what` names it in an error."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{what} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a benchmark in rounds."""
    parser.add_argument("--quick", action="store_true", help="one round, a quarter of the messages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
