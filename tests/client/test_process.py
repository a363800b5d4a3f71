"""What a process does with the synchronous client: threads that it forgets, forks, Ctrl-C."""

import gc
import signal
import subprocess
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.cli.program import Program, child
from tests.client.concurrency import until
from tests.patience import WAIT_SECONDS

from spanmq.client import Client

Connection = psycopg.Connection[Any]


# Programs that end.


def running(program: str, database: str, *, warnings: str = "error") -> AbstractContextManager[Program[str]]:
    command = [sys.executable, "-W", warnings, "-c", program, database]
    return child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_program_that_forgets_to_close_its_client_ends_quietly(database: str, client: Client) -> None:
    program = (
        "import sys\n"
        "from spanmq.client import Client\n"
        "client = Client(sys.argv[1], maintain_interval=0.01)\n"
        "client.send('orders', 1)\n"
        "client.receive('orders')\n"
        "client.receive('orders', wait=0.2)\n"
    )
    with running(program, database) as process:
        assert process.communicate(timeout=WAIT_SECONDS) == ("", "")
    assert process.returncode == 0


def test_interrupted_wait_ends_at_once_and_takes_nothing(
    database: str, client: Client, observer: Connection
) -> None:
    program = (
        "import sys\n"
        "from spanmq.client import Client\n"
        "with Client(sys.argv[1]) as client:\n"
        "    print('waiting', flush=True)\n"
        "    client.receive('orders', wait=300)\n"
    )
    with running(program, database) as process:
        assert process.stdout.readline() == "waiting\n"
        until(
            observer,
            "select count(*) > 0 from pg_stat_activity where datname = current_database()"
            " and pid <> pg_backend_pid() and query like '%receive%'",
        )
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_SECONDS)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    client.send("orders", 1)
    assert len(client.receive("orders")) == 1


def test_client_that_was_called_before_a_fork_refuses_after_it(database: str, client: Client) -> None:
    program = (
        "import os, sys\n"
        "from spanmq.client import Client\n"
        "from spanmq.errors import NotPossibleError\n"
        "called, fresh = Client(sys.argv[1], pool_size=1), Client(sys.argv[1])\n"
        "called.send('orders', 'before')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        called.send('orders', 'lost')\n"
        "    except NotPossibleError as error:\n"
        "        fresh.send('orders', error.message)\n"
        "    called.close()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "called.send('orders', 'after')\n"
    )
    # Python warns of threads in a program that forks.
    with running(program, database, warnings="ignore") as process:
        assert process.communicate(timeout=WAIT_SECONDS) == ("", "")
    bodies = [message.body for message in client.peek("orders")]
    assert bodies == [
        "before",
        "the client was opened by another process, and processes can't share its connections",
        "after",
    ]


# Threads that run maintenance.


def keepers() -> set[threading.Thread]:
    """Return the threads that run maintenance; a client of an earlier test may have left one."""
    return {thread for thread in threading.enumerate() if thread.name == "spanmq maintenance"}


def test_maintenance_runs_only_if_it_is_asked_for_and_over_a_pool(
    database: str, observer: Connection
) -> None:
    before = keepers()
    with Client(connection=observer, maintain_interval=0.001), Client(database):
        assert keepers() <= before


def test_upstream_needs_no_maintenance(upstream_database: str, caplog: pytest.LogCaptureFixture) -> None:
    before = keepers()
    with Client(upstream_database, maintain_interval=0.001) as client:
        client.queues.list()
        for thread in keepers() - before:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
    assert [record for record in caplog.records if record.name == "spanmq"] == []


def test_role_without_the_right_leaves_maintenance_to_others(
    database: str, observer: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    before = keepers()
    role = f"spanmq_test_{uuid.uuid4().hex[:12]}"
    observer.execute(sql.SQL("create role {}").format(sql.Identifier(role)))
    caplog.set_level("INFO", "spanmq")
    try:
        with Client(make_conninfo(database, options=f"-c role={role}"), maintain_interval=0.001) as client:
            client.queues.list()
            for thread in keepers() - before:
                thread.join(WAIT_SECONDS)
                assert not thread.is_alive()
    finally:
        observer.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
    [told] = [record.getMessage() for record in caplog.records if record.name == "spanmq"]
    assert told.startswith("maintenance_left_to_others error='permission denied")


# A thread of the forgotten pool may be the one that frees it, which psycopg reports: it can't join itself.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_client_that_nobody_uses_any_more_ends_its_threads(database: str, client: Client) -> None:
    before = keepers()
    forgotten = Client(database, maintain_interval=0.01)
    forgotten.send("orders", 1)
    watched = weakref.ref(forgotten)
    [thread] = keepers() - before
    # Found by a thread of its own pool, the pool would wait for that thread.
    gc.disable()
    try:
        del forgotten
        deadline = time.monotonic() + WAIT_SECONDS
        while thread.is_alive() and time.monotonic() < deadline:
            gc.collect()
            thread.join(0.02)
    finally:
        gc.enable()
    assert watched() is None
    assert not thread.is_alive()


def pauses_of_maintenance(
    monkeypatch: pytest.MonkeyPatch, is_enough: Callable[[list[float]], bool]
) -> tuple[list[float], Callable[[], bool]]:
    """Return the pauses of the next client's maintenance, which stops at enough of them, and a wait for that."""
    pauses: list[float] = []
    reached = threading.Event()
    wait = threading.Event.wait
    others = set(threading.enumerate())

    def watched(event: threading.Event, timeout: float | None = None) -> bool:
        thread = threading.current_thread()
        if thread.name == "spanmq maintenance" and thread not in others and timeout is not None:
            pauses.append(timeout)
            if is_enough(pauses):
                reached.set()
                return wait(event, 60)
        return wait(event, timeout)

    monkeypatch.setattr(threading.Event, "wait", watched)
    return pauses, lambda: wait(reached, WAIT_SECONDS)


def test_idle_maintenance_is_in_time(database: str, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause of a client that has been idle for long ends when the next time is due."""
    client.schedules.create("often", "orders", "0 * * * * *", 1)
    pauses, reached = pauses_of_maintenance(monkeypatch, lambda pauses: len(pauses) > 1)
    with Client(database, maintain_interval=0.01) as keeper:
        keeper.open()
        monkeypatch.setattr("spanmq.client._sync.maintenance.IDLE_FACTOR", 1_000_000)
        assert reached()
        # Doubled from 0.01, and never longer than until the next minute.
        assert max(pauses) <= 60


def test_maintenance_that_took_long_and_found_nothing_pauses_longer(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, reached = pauses_of_maintenance(monkeypatch, lambda pauses: pauses[-1] > 0.3)
    monkeypatch.setattr("spanmq.client._sync.maintenance.SLOWNESS", 1_000_000_000)
    with Client(database, maintain_interval=0.01) as keeper:
        keeper.open()
        assert reached()
    # Without it, the pause of an idle client only doubles each time.
    assert {round(pause, 3) for pause in pauses} == {0.01, 0.32}
