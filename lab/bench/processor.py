"""Processor time of a process and of what it started, also of what has ended; Linux only."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psycopg

_TICKS = os.sysconf("SC_CLK_TCK")
# In /proc/PID/stat, behind the name: the parent; its own time; its ended children's; both.
_PARENT, _OWN, _ENDED, _WITH_ENDED = 1, slice(11, 13), slice(13, 15), slice(11, 15)


def seconds_of(pid: int) -> float:
    """Return what a process and its children, living and ended, have used until now."""
    parent = _fields(pid)
    while True:
        before = parent
        living = _ticks_of_children(pid)
        parent = _fields(pid)
        # A child that ended meanwhile would count twice, or not at all: then its parent's count has changed.
        if parent[_ENDED] == before[_ENDED]:
            return (living + sum(map(int, parent[_WITH_ENDED]))) / _TICKS


def seconds_of_all(*pids: int) -> float:
    """Return what processes and all that they started, at any depth, have used until now, also what has ended."""
    processes: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended
                processes[int(folder.name)] = _fields(int(folder.name))
    family = set(pids)
    while (
        more := {process for process, fields in processes.items() if int(fields[_PARENT]) in family} - family
    ):
        family |= more
    return sum(int(n) for process in family for n in processes[process][_WITH_ENDED]) / _TICKS


def nanoseconds_of(pid: int) -> int:
    """Return what one process has used until now."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


def server_of(dsn: str) -> int | None:
    """Return the process that started the server's backends; None where it runs elsewhere."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select pg_backend_pid()").fetchone()
        return None if row is None else _parent(int(row[0]))


def _ticks_of_children(pid: int) -> int:
    """Return the ticks that the living children of a process have used."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = _fields(int(folder.name))
            except OSError:  # it has ended
                continue
            if int(fields[_PARENT]) == pid:
                ticks += sum(map(int, fields[_OWN]))
    return ticks


def _parent(pid: int) -> int | None:
    try:
        fields = _fields(pid)
        parent = int(fields[_PARENT])
        name = Path(f"/proc/{parent}/comm").read_text().strip()
    except OSError:
        return None
    return parent if name == "postgres" else None


def _fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
