"""A history of what a test and its workers do to a queue, which no promise of a queue may contradict."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from lab.bench.history import problems, read
from lab.bench.history.clients import told
from lab.bench.history.recording import recording
from psycopg.rows import scalar_row

# Verbs of a test in which something was delivered.
EVERYTHING = {"send", "receive", "settle"}


@contextmanager
def checked(dsn: str, folder: Path, queue: str = "orders") -> Iterator[None]:
    """Record the calls of this process on a queue; check them, and what others have recorded there, at the end."""
    with recording(folder, "test", queue):
        yield
    with psycopg.connect(dsn, autocommit=True, row_factory=scalar_row) as connection:
        policy = connection.execute("select spanmq.get_policy(%s)", [queue]).fetchone() or {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        calls = told(folder, connection, queue)
    assert problems(calls, ordered=policy["ordered"], max_attempts=policy["max_attempts"]) == []


def verbs(folder: Path) -> set[str]:
    """Return the verbs of the calls that did something."""
    return {call.verb for call in read(folder) if call.got}
