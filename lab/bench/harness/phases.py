"""What goes on beside the load in the phases of the harness."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, suppress

import psycopg
from lab.bench.harness.run import Run

# As in the article on readers that overlap: three, each for two minutes, unless the phase is shorter.
READERS, READER_SECONDS = 3, 120.0
# Times as long as a count took.
READER_PAUSES = 10
KILL_EVERY_SECONDS = 8.0
# The shares of a phase before something happens to the server, and until its connections are free again.
BEFORE_SHARE, HELD_SHARE = 0.25, 0.5
TAKE_EVERY_SECONDS = 0.02
END_OTHERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> all(%s::int[])"
)


def clean(_: Run, seconds: float) -> None:
    """Do nothing beside the load."""
    time.sleep(seconds)


def idle_in_transaction(run: Run, seconds: float) -> None:
    """Hold a transaction open that has an id."""
    with psycopg.connect(run.dsn) as connection:
        connection.execute("select pg_current_xact_id()")
        time.sleep(seconds)


def overlapping_readers(run: Run, seconds: float) -> None:
    """Count the queue's messages again and again in snapshots, of which there is always an old one.

    A reader pauses for a second, or for READER_PAUSES times as long as its last count took: what is measured is the
    effect of its snapshot, and three sessions that do nothing but count would leave no processor to anything else.
    """
    stopped = threading.Event()

    def read(delay: float, lasting: float) -> None:
        stopped.wait(delay)
        while not stopped.is_set():
            with psycopg.connect(run.dsn) as connection:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                ended_at = time.monotonic() + lasting
                took = 0.0
                while time.monotonic() < ended_at and not stopped.wait(max(1.0, READER_PAUSES * took)):
                    began_at = time.monotonic()
                    connection.execute(f"select count(*) from {run.table}".encode())
                    took = time.monotonic() - began_at

    lasting = min(READER_SECONDS, seconds * 0.75)
    readers = [
        threading.Thread(target=read, args=(place * lasting / READERS, lasting)) for place in range(READERS)
    ]
    for reader in readers:
        reader.start()
    time.sleep(seconds)
    stopped.set()
    for reader in readers:
        reader.join()


def killed_workers(run: Run, seconds: float) -> None:
    """Kill one process again and again, and start another in its place."""
    ended_at = time.monotonic() + seconds
    for _ in range(int(seconds // KILL_EVERY_SECONDS)):
        time.sleep(KILL_EVERY_SECONDS)
        run.processes[1].kill()
        run.processes[1].wait()
        run.start(1)
    time.sleep(max(0.0, ended_at - time.monotonic()))


def exhausted_pool(run: Run, seconds: float) -> None:
    """End the system's sessions, and hold all connections of the server for a quarter of the time."""
    ended_at = time.monotonic() + seconds
    free_at = time.monotonic() + seconds * HELD_SHARE
    time.sleep(seconds * BEFORE_SHARE)
    with ExitStack() as stack:
        taken: list[psycopg.Connection[tuple[object, ...]]] = []

        def take_all() -> None:
            with suppress(psycopg.OperationalError):
                while time.monotonic() < free_at:
                    taken.append(stack.enter_context(psycopg.connect(run.dsn, autocommit=True)))

        take_all()
        taken[0].execute(END_OTHERS, [[each.info.backend_pid for each in taken]])
        while time.monotonic() < free_at:
            take_all()
            time.sleep(TAKE_EVERY_SECONDS)
    time.sleep(max(0.0, ended_at - time.monotonic()))


def restarted_server(run: Run, seconds: float) -> None:
    """Stop the server in good order, and start it again."""
    assert run.server is not None
    ended_at = time.monotonic() + seconds
    time.sleep(seconds * BEFORE_SHARE)
    run.server.restart()
    time.sleep(max(0.0, ended_at - time.monotonic()))


def killed_server(run: Run, seconds: float) -> None:
    """Kill all processes of the server (SIGKILL), and start it again."""
    assert run.server is not None
    ended_at = time.monotonic() + seconds
    time.sleep(seconds * BEFORE_SHARE)
    run.server.kill()
    run.server.restart()
    time.sleep(max(0.0, ended_at - time.monotonic()))
