"""A queue beside the load of a soak, of which every call is recorded; a check of the history follows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.bench.database import Database
from lab.bench.history import problems
from lab.bench.history.clients import MAX_ATTEMPTS, create, load, told
from lab.bench.stage import Stage

RECORDED = "bench_recorded"
# Of each of the five clients, so that the load stays what is measured.
PAUSE_SECONDS = 0.1


@contextmanager
def recorded(stage: Stage, database: Database) -> Iterator[None]:
    """Have clients at work on a queue of their own during a block; raise RuntimeError if their history is not sound."""
    with tempfile.TemporaryDirectory(prefix="spanmq-history-") as folder, database.connect() as connection:
        create(connection, RECORDED)
        try:
            with load(database.dsn, Path(folder), RECORDED, pause=PAUSE_SECONDS):
                yield
            calls = told(Path(folder), connection, RECORDED)
        finally:
            connection.execute("select pgmq.drop_queue(%s)", [RECORDED])
    faults = problems(calls, ordered=True, max_attempts=MAX_ATTEMPTS)
    stage.note(f"history: {len(calls)} calls, {len(faults)} problems")
    if faults:
        raise RuntimeError("\n".join(faults))
