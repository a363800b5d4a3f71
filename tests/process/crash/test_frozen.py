"""Sessions that freeze in the middle of what they do: the others go on, and nothing is lost or comes twice."""

import os
import random
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.history import problems
from bench.history.clients import MAX_ATTEMPTS, Client, create, load, told
from tests.patience import wait_until
from tests.sql.model.invariants import broken_invariants
from tests.sql.seeds import IS_DEEP

# How often one freezes, and the answers that each other client has before that one goes on.
FREEZES = 100 if IS_DEEP else 20
ENOUGH = 5
# In the middle of a statement, not between two.
BUSY = (
    "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    " and state = 'active' and query ~ 'pgmq|spanmq' and wait_event_type is distinct from 'Lock'"
)
# A process may freeze with a lock of the server's own, as of a page of its log, for which all have to wait.
WAITING = (
    "select count(*) filter (where wait_event_type in ('Lock', 'LWLock')) = count(*) from pg_stat_activity"
    " where datname = current_database() and pid not in (pg_backend_pid(), %s) and query ~ 'pgmq|spanmq'"
)


def busy_session(observer: psycopg.Connection[Any], chosen: random.Random) -> int:
    """Return one of the sessions that are in the middle of a statement."""
    while not (pids := observer.execute(BUSY.encode()).fetchall()):
        pass
    return int(chosen.choice(pids)[0])


def go_on(observer: psycopg.Connection[Any], clients: list[Client], targets: list[int], pid: int) -> bool:
    """Return whether all clients but one have enough answers, or none can have any."""
    reached = sum(client.answers >= target for client, target in zip(clients, targets, strict=True))
    return reached >= len(clients) - 1 or observer.execute(WAITING, [pid]).fetchone() == (True,)


@pytest.mark.parametrize("seed", range(3 if IS_DEEP else 1))
def test_nothing_is_lost_when_sessions_freeze(database: str, tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    with psycopg.connect(database, autocommit=True) as observer:
        create(observer, "jobs")
        with load(database, tmp_path, "jobs") as clients:
            for _ in range(FREEZES):
                pid = busy_session(observer, chosen)
                targets = [client.answers + ENOUGH for client in clients]
                os.kill(pid, signal.SIGSTOP)
                try:
                    # All but the one that is frozen.
                    wait_until(partial(go_on, observer, clients, targets, pid))
                finally:
                    os.kill(pid, signal.SIGCONT)
        assert broken_invariants(observer) == []
        calls = told(tmp_path, observer, "jobs")
    assert problems(calls, ordered=True, max_attempts=MAX_ATTEMPTS) == []
