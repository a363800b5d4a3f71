"""A session whose processor time on the server is measured, for cases of single calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from lab.bench import processor, results
from lab.bench.contestants import LEASE_SECONDS, NATIVE, QUEUE, Contestant
from lab.bench.database import Database

_POSITION = "select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"
# Versions of rows that a later vacuum must remove: those that are updated or deleted.
_DEAD = (
    "select pg_stat_force_next_flush(), (select coalesce(sum(n_tup_upd + n_tup_del), 0)"
    " from pg_stat_user_tables where schemaname in ('pgmq', 'spanmq_core'))"
)


@dataclass(slots=True)
class Player:
    """One contestant in a session of its own. Only `timed` counts; `run` prepares."""

    contestant: Contestant
    database: Database
    connection: psycopg.Connection
    nanoseconds: int = 0
    wal_bytes: int = 0
    dead_rows: int = 0
    messages: int = 0
    details: dict[str, float] = field(default_factory=dict)

    @property
    def native(self) -> bool:
        """Return whether it uses spanmq's own functions."""
        return self.contestant.name == NATIVE

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement as prepared and return its rows."""
        cursor = self.connection.execute(statement.encode(), values or None, prepare=True)
        return cursor.fetchall() if cursor.description else []

    def timed(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute a statement as `run` does, and add its processor time."""
        pid = self.connection.info.backend_pid
        before = processor.nanoseconds_of(pid)
        rows = self.run(statement, *values)
        self.nanoseconds += processor.nanoseconds_of(pid) - before
        return rows

    def lifetime(self) -> int:
        """Return the nanoseconds that the session's process has used since it began."""
        return processor.nanoseconds_of(self.connection.info.backend_pid)

    def count_writes(self) -> tuple[int, int]:
        """Return the position of the WAL, and how many versions of rows have died."""
        # Statistics of other sessions arrive when these have ended; this session's own are flushed first.
        self.connection.execute(_DEAD.encode())
        return int(self.run(_POSITION)[0][0]), int(self.run(_DEAD)[0][1])

    def send(self, bodies: Sequence[str], *, timed: bool) -> None:
        """Send bodies in one call, a single one by `send`."""
        execute = self.timed if timed else self.run
        if len(bodies) == 1:
            execute(f"select * from pgmq.send('{QUEUE}', %s::jsonb)", bodies[0])
        else:
            execute(f"select * from pgmq.send_batch('{QUEUE}', %s::jsonb[])", list(bodies))

    def take(self, quantity: int, *, timed: bool) -> tuple[list[int], int]:
        """Receive messages; return their ids and the lease, which is 0 where the interface has none."""
        execute = self.timed if timed else self.run
        if self.native:
            rows = execute(f"select * from spanmq.receive('{QUEUE}', {quantity}, {LEASE_SECONDS}, 1)")
            place = self.contestant.columns.index("lease_id")
            return [row[0] for row in rows], int(rows[0][place]) if rows else 0
        rows = execute(f"select * from pgmq.read('{QUEUE}', {LEASE_SECONDS}, {quantity})")
        return [row[0] for row in rows], 0

    def settle(self, ids: Sequence[int], lease: int) -> None:
        """Settle messages in one timed call; a single one by the form that takes one id."""
        if self.native:
            self.timed(f"select * from spanmq.ack('{QUEUE}', %s, %s::bigint[])", lease, list(ids))
        elif len(ids) == 1:
            self.timed(f"select pgmq.delete('{QUEUE}', %s::bigint)", ids[0])
        else:
            self.timed(f"select * from pgmq.delete('{QUEUE}', %s::bigint[])", list(ids))

    def kept(self) -> dict[str, float]:
        """Return what is kept beside the time, for each message."""
        if not self.messages:
            return self.details
        return self.details | {
            results.WAL_BYTES: self.wal_bytes / self.messages,
            results.DEAD_ROWS: self.dead_rows / self.messages,
        }
