"""The resource usage of the server: WAL, dead rows, sizes, CPU."""

import importlib.resources
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import IsolationLevel, RawCursor
from psycopg.rows import namedtuple_row

from spanmq.errors import ConnectionFailedError

FOLDER: Final = importlib.resources.files("spanmq_lab") / "sql"


def read(name: str) -> bytes:
    """Read one of our statements."""
    return (FOLDER / f"{name}.sql").read_bytes()


@dataclass(frozen=True, slots=True)
class Table:
    """One table with its indexes."""

    name: str
    bytes: int
    dead_tuples: int


@dataclass(frozen=True, slots=True)
class Look:
    """A measurement of the server; sums since the server started. None: not available."""

    version: str
    connections: int
    wal_bytes: int | None
    cpu_seconds: float | None
    tables: tuple[Table, ...]


class ServerProbe:
    """A connection that measures, and another that holds a snapshot if requested."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection = connect(dsn)
        self._connection.autocommit = True
        self._holder: psycopg.Connection[Any] | None = None

    def look(self, prefixes: Sequence[str]) -> Look:
        """Measure the server, and the tables whose names have these prefixes."""
        with RawCursor(self._connection, row_factory=namedtuple_row) as cursor:
            said = cursor.execute(read("server")).fetchone()
            tables = cursor.execute(read("tables"), [list(prefixes)]).fetchall()
        wal = getattr(said, "wal_bytes", None)
        return Look(
            version=getattr(said, "version", ""),
            connections=int(getattr(said, "connections", 0)),
            wal_bytes=None if wal is None else int(wal),
            cpu_seconds=cpu_of_server(getattr(said, "process_id", 0)),
            tables=tuple(Table(name, int(size), int(dead)) for name, size, dead in tables),
        )

    def hold_snapshot(self) -> None:
        """Hold a snapshot, so that no dead rows are removed from now on."""
        self._holder = connect(self._dsn)
        self._holder.isolation_level = IsolationLevel.REPEATABLE_READ
        self._holder.execute(read("hold_snapshot"))

    def close(self) -> None:
        """Disconnect."""
        if self._holder is not None:
            self._holder.close()
        self._connection.close()


def connect(dsn: str, **parameters: Any) -> psycopg.Connection[Any]:
    """Connect, with parameters of libpq beside those of the DSN; raises ConnectionFailedError."""
    try:
        return psycopg.connect(dsn, **parameters)
    except psycopg.OperationalError as error:
        raise ConnectionFailedError(str(error).strip()) from error


def cpu_of_server(backend: int) -> float | None:
    """Return the CPU seconds of all processes of a server on this machine, also of ended ones; None
    elsewhere.

    Linux reports for a process its own usage and that of its ended children, so the sum is complete.
    """
    try:
        if not Path(f"/proc/{backend}/comm").read_text().startswith("postgres"):
            return None
        postmaster = int(stat_of(str(backend))[1])
        ticks = sum(map(int, stat_of(str(postmaster))[11:15]))
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                fields = stat_of(folder.name)
                if fields and int(fields[1]) == postmaster:
                    ticks += sum(map(int, fields[11:13]))
    except (OSError, IndexError, ValueError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def stat_of(process: str) -> list[str]:
    """Return the fields of /proc/…/stat after the name, which may be any text; [] for an ended process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
