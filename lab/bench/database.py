"""The contestants' databases on one server: making, calming, measuring, and calling them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from lab.bench import bodies
from lab.bench.contestants import PGMQ_DATABASE, QUEUE, SPANMQ_DATABASE
from lab.bench.load import APPLICATION_NAME
from lab.bench.plan import ALL_BATCHES
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.pq import ExecStatus

MAINTAIN_SECONDS = 0.5  # how often a client's pool would call maintain()
_MAINTAIN_CALLS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Totals:
    """Counters of a database at one moment."""

    wal_position: int
    dead_tuples: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Database:
    """One contestant's database."""

    dsn: str
    name: str

    @property
    def ours(self) -> bool:
        """Return whether it holds spanmq's schema."""
        return self.name == SPANMQ_DATABASE

    def connect(self) -> psycopg.Connection:
        """Open a session in autocommit."""
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run one statement on a new connection, and return its rows."""
        with self.connect() as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def number(self, statement: str) -> int:
        """Run a statement that gives one number."""
        return int(str(self.execute(statement)[0][0]))

    def create_queue(self) -> None:
        """Create the queue anew."""
        self.drop_queue()
        self.execute(f"select pgmq.create('{QUEUE}')")

    def drop_queue(self) -> None:
        """Drop the queue if it is there."""
        if self.number(f"select count(*) from pgmq.list_queues() where queue_name = '{QUEUE}'"):
            self.execute(f"select pgmq.drop_queue('{QUEUE}')")

    def fill(self, call: str) -> None:
        """Call one of the procedures of bench.sql, without waiting for the disk at each commit."""
        with self.connect() as connection:
            connection.execute("set synchronous_commit = off")
            connection.execute(f"call bench.{call}")

    def waiting(self) -> int:
        """Count the messages in the queue, leased ones included."""
        return self.number(f"select queue_length from pgmq.metrics('{QUEUE}')")

    def state_bytes(self) -> int:
        """Return the size of what changes with each delivery, with its indexes: of PGMQ's queue its table."""
        return self.number(
            "select sum(pg_total_relation_size(oid)) from pg_class"
            " where relname = any ('{state,later,bound,upkeep,segment}')"
            " and relnamespace = 'spanmq_core'::regnamespace"
            if self.ours
            else f"select pg_total_relation_size('pgmq.q_{QUEUE}')"
        )

    def maintain(self) -> int:
        """Do all the housekeeping there is, and return how many steps it took; PGMQ has none."""
        if not self.ours:
            return 0
        with self.connect() as connection:
            return _maintain(connection)

    def calm(self) -> None:
        """Vacuum, analyze and write everything out, so that one case does not pay for the one before."""
        with self.connect() as connection:
            tables = connection.execute(
                "select format('%I.%I', schemaname, relname) from pg_stat_user_tables"
                " where schemaname in ('pgmq', 'spanmq_core')"
            ).fetchall()
            # In one statement: each looks through all of pg_class at its end.
            if tables:
                connection.execute(f"vacuum (analyze) {', '.join(table for (table,) in tables)}")
            # Not permitted on a managed server; then its own checkpoints must do.
            with suppress(psycopg.errors.InsufficientPrivilege):
                connection.execute("checkpoint")

    def totals(self) -> Totals:
        """Read the counters, after the sessions of the last run have gone and reported theirs."""
        self._wait_until_alone()
        ((wal_position, dead_tuples, size),) = self.execute(
            "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn, coalesce(sum(n_dead_tup), 0),"
            " coalesce(sum(pg_total_relation_size(relid)), 0)"
            " from pg_stat_user_tables where schemaname in ('pgmq', 'spanmq_core')"
        )
        return Totals(int(str(wal_position)), int(str(dead_tuples)), int(str(size)))

    @contextmanager
    def held_snapshot(self) -> Iterator[None]:
        """Keep a snapshot of this database open: an idle REPEATABLE READ transaction."""
        with self.connect() as connection:
            connection.execute("begin isolation level repeatable read")
            connection.execute("select count(*) from pg_class")
            yield
            connection.execute("rollback")

    @contextmanager
    def open_writer(self) -> Iterator[None]:
        """Keep a transaction of this database open that has written, into no queue."""
        with self.connect() as connection:
            connection.execute("begin")
            connection.execute("update bench.tick set count = count + 1")
            yield
            connection.execute("rollback")

    @contextmanager
    def maintained(self) -> Iterator[None]:
        """Do the housekeeping of a client's pool in the background (upstream's is autovacuum alone)."""
        if not self.ours:
            yield
            return
        self.maintain()
        stop, failures = threading.Event(), list[psycopg.Error]()

        def keep_house() -> None:
            try:
                # A pool keeps its sessions too: the first call of each plans all that maintain() may do.
                with self.connect() as connection:
                    while not stop.wait(MAINTAIN_SECONDS):
                        _maintain(connection)
            except psycopg.Error as error:
                failures.append(error)

        thread = threading.Thread(target=keep_house, name="maintain")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failures:
            raise failures[0]

    def _wait_until_alone(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            if not self.number(
                "select count(*) from pg_stat_activity where datname = current_database()"
                f" and application_name = '{APPLICATION_NAME}'"
            ):
                return
            time.sleep(0.02)


def _maintain(connection: psycopg.Connection) -> int:
    for steps in range(_MAINTAIN_CALLS_MAX):
        if not connection.execute("select * from spanmq.maintain()").fetchall():
            return steps
    raise RuntimeError(f"maintain() still had work after {_MAINTAIN_CALLS_MAX} calls")


class Probe:
    """One session that times single prepared calls, straight through libpq: the driver adds microseconds."""

    __slots__ = ("_connection", "_prepared")

    def __init__(self, database: Database) -> None:
        self._connection = database.connect()
        self._prepared: set[str] = set()

    def call_ms(self, statement: str, *, rows: int | None = None) -> float:
        """Run the statement, receive all its rows, and return the milliseconds. Prepares it first, untimed.

        Raises RuntimeError when it fails or gives another number of rows than asked for.
        """
        name = f"probe_{hash(statement)}".encode()
        if statement not in self._prepared:
            self._connection.pgconn.prepare(name, statement.encode())
            self._prepared.add(statement)
        started_at = time.perf_counter()
        result = self._connection.pgconn.exec_prepared(name, [])
        elapsed_ms = (time.perf_counter() - started_at) * 1000
        if result.status != ExecStatus.TUPLES_OK:
            raise RuntimeError(f"{statement}: {result.error_message.decode()}")
        if rows is not None and result.ntuples != rows:
            raise RuntimeError(f"{statement}: {result.ntuples} rows where {rows} should come")
        return elapsed_ms

    def close(self) -> None:
        """End the session."""
        self._connection.close()


def create(server_dsn: str, name: str) -> Database:
    """Create a contestant's database anew, with its schema, the bodies and the filling procedures."""
    drop(server_dsn, name)
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    database = Database(make_conninfo(server_dsn, dbname=name), name)
    with database.connect() as connection:
        if name == PGMQ_DATABASE:
            connection.execute(upstream_sql())
        else:
            _install_spanmq(connection)
        connection.execute((Path(__file__).parent / "bench.sql").read_text())
        bodies.store(connection, ALL_BATCHES)
        connection.execute("vacuum analyze bench.body, bench.batch")
    return database


def drop(server_dsn: str, name: str) -> None:
    """Drop a contestant's database if it is there."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def upstream_sql() -> str:
    """Return PGMQ's SQL, as its package on PyPI installs it."""
    import pgmq

    return str(pgmq.get_embedded_install_sql())


def _install_spanmq(connection: psycopg.Connection) -> None:
    from spanmq import schema

    schema.install(connection)
