"""Where the numbers come from: the machine, the versions, the server's settings."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from lab.bench.contestants import PGMQ_DATABASE, SPANMQ_DATABASE
from lab.bench.database import Database

_SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "data_checksums",
    "wal_level",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "work_mem",
    "max_connections",
    "autovacuum",
    "autovacuum_naptime",
    "jit",
    "io_method",
)
_COMMITS = 100


@dataclass(frozen=True, slots=True)
class Environment:
    """What a reader must know to judge the numbers."""

    started_at: str
    processor: str
    processors: int
    memory_gigabytes: float
    system: str
    load_average_before: float
    commit_ms: float  # the median commit of one updated row: what the disk costs
    versions: dict[str, str]
    settings: dict[str, str]


def look(databases: dict[str, Database]) -> Environment:
    """Look at the machine and the server."""
    database = next(iter(databases.values()))
    with database.connect() as connection:
        settings = {
            name: str(setting)
            for name in _SETTINGS
            for (setting,) in connection.execute("select current_setting(%s, true)", (name,)).fetchall()
            if setting is not None
        }
    versions = {"PostgreSQL": str(database.execute("show server_version")[0][0])}
    if PGMQ_DATABASE in databases:
        versions["pgmq (PyPI, upstream SQL)"] = importlib.metadata.version("pgmq")
    if SPANMQ_DATABASE in databases:
        versions["spanmq"] = str(databases[SPANMQ_DATABASE].execute("select spanmq.version()")[0][0])
    return Environment(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        processor=_processor(),
        processors=os.cpu_count() or 1,
        memory_gigabytes=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=f"{platform.system()} {_release()}, Python {platform.python_version()}",
        load_average_before=round(os.getloadavg()[0], 2),
        commit_ms=_commit_ms(database),
        versions=versions,
        settings=settings,
    )


def _release() -> str:
    """Return the kernel's version without what its builder added."""
    return ".".join(platform.release().split("-")[0].split(".")[:2])


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit_ms(database: Database) -> float:
    times: list[float] = []
    with database.connect() as connection:
        for _ in range(_COMMITS):
            started_at = time.perf_counter()
            connection.execute("update bench.tick set count = count + 1")
            times.append((time.perf_counter() - started_at) * 1000)
    return round(median(times), 3)
