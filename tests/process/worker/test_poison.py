"""Messages that kill their process: they die after their attempts, and take no other message along."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.program import child, wait_until
from tests.patience import WAIT_SECONDS
from tests.sql.queue import change_state

from spanmq import Client

PROGRAM = Path(__file__).with_name("mortal.py")
# A single process never waits for the end of a lease: its parent ends them.
SETTINGS = {"lease": 30.0, "poll_interval": 0.1}


@dataclass
class Mortals:
    """Workers that are started again when they die."""

    program: subprocess.Popen[bytes]
    log: Path

    def handled(self) -> list[tuple[int, int]]:
        """Return the id and the attempt of each handling, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(int(message_id), int(attempt)) for message_id, attempt in map(str.split, lines)]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.handled()) >= count, self.program)

    def go_on(self) -> None:
        """Let the handlers return that wait."""
        Path(f"{self.log}.go").touch()

    def kill_all(self) -> None:
        self.program.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        self.program.send_signal(signal.SIGTERM)
        assert self.program.wait(WAIT_SECONDS) == 0


@contextmanager
def mortals(dsn: str, log: Path, **settings: Any) -> Iterator[Mortals]:
    text = json.dumps(SETTINGS | settings)
    root = Path(__file__).parents[3]
    with child([sys.executable, str(PROGRAM), dsn, str(log), text], cwd=root) as program:
        yield Mortals(program, log)
        if program.poll() is None:
            program.send_signal(signal.SIGTERM)
            program.wait(WAIT_SECONDS)


def send(client: Client, count: int, places: Sequence[int], **options: Any) -> tuple[list[int], list[int]]:
    """Send messages of which those at these places kill; return all ids, and theirs."""
    ids = client.send_batch("orders", ["kill" if i in places else "good" for i in range(count)], **options)
    return ids, [ids[place] for place in places]


def work_off(client: Client, working: Mortals) -> Counter[int]:
    """Wait until nothing is left; return how often each message was handled."""
    wait_until(lambda: not client.queues.metrics("orders").length, working.program)
    working.end()
    return Counter(message_id for message_id, _ in working.handled())


def dead(client: Client) -> list[int]:
    return sorted(each.message_id for each in client.dead_letters.list("orders", limit=1000))


@pytest.mark.parametrize(
    ("count", "most", "settings"),
    [
        pytest.param(100, 3, {"concurrency": 10, "seconds": 0.02}, id="ten handlers"),
        pytest.param(100, 3, {"concurrency": 10, "seconds": 0.02, "is_async": True}, id="async handlers"),
        pytest.param(
            100, 3, {"concurrency": 10, "seconds": 0.02, "processes": 2, "lease": 2.0}, id="two workers"
        ),
        pytest.param(100, 3, {"concurrency": 1, "in_batches": True, "batch": 10}, id="batches"),
        pytest.param(60, 3, {"concurrency": 4, "seconds": 0.01}, id="ordered"),
        pytest.param(60, 12, {"concurrency": 10, "seconds": 0.02}, id="twelve attempts"),
        pytest.param(60, None, {"concurrency": 10, "seconds": 0.02}, id="by default"),
        pytest.param(30, 3, {"concurrency": 1}, id="one handler"),
        pytest.param(30, 2, {"concurrency": 5, "seconds": 0.01}, id="two attempts"),
    ],
)
def test_poison_is_handled_as_often_as_it_may_be_and_kills_no_other_message(
    client: Client,
    database: str,
    tmp_path: Path,
    count: int,
    most: int | None,
    settings: dict[str, Any],
    request: pytest.FixtureRequest,
) -> None:
    policy: dict[str, Any] = {} if most is None else {"max_attempts": most}
    groups = None
    if "ordered" in request.node.name:
        policy["ordered"] = True
        groups = [f"group {i % 6}" for i in range(count)]
    client.queues.set_policy("orders", **policy)
    ids, [poison] = send(client, count, [count // 3], group=groups)
    with mortals(database, tmp_path / "log", **settings) as working:
        handled = work_off(client, working)
    assert dead(client) == [poison]
    assert handled[poison] == (most or 25)
    assert handled.keys() == set(ids)
    assert max(times for each, times in handled.items() if each != poison) <= min(most or 25, 4)


@pytest.mark.parametrize(
    ("places", "settings"),
    [
        pytest.param([20, 60, 100, 101, 180], {"concurrency": 10, "seconds": 0.01}, id="several poisons"),
        pytest.param([70], {"threads": 10, "seconds": 0.001}, id="threads that receive by themselves"),
    ],
)
def test_poisons_kill_no_other_message(
    client: Client, database: str, tmp_path: Path, places: list[int], settings: dict[str, Any]
) -> None:
    client.queues.set_policy("orders", max_attempts=3)
    _, poisons = send(client, 200, places)
    with mortals(database, tmp_path / "log", **settings) as working:
        handled = work_off(client, working)
    assert dead(client) == poisons
    # One of several may lose attempts with the worker of another.
    assert max(handled[each] for each in poisons) <= 3
    assert len(poisons) > 1 or handled[poisons[0]] == 3


def test_poison_beside_messages_that_have_failed(client: Client, database: str, tmp_path: Path) -> None:
    client.queues.set_policy("orders", max_attempts=3, backoff_base=0)
    ids = client.send_batch("orders", ["good"] * 20)
    for _ in range(2):
        client.nack(client.receive("orders", 20), "failed")
    [poison] = client.send_batch("orders", ["kill"])
    with mortals(database, tmp_path / "log", concurrency=10, seconds=0.02) as working:
        handled = work_off(client, working)
    assert dead(client) == [poison]
    assert handled[poison] == 3
    assert handled.keys() == {*ids, poison}


def test_two_queues_with_a_poison_each(client: Client, database: str, tmp_path: Path) -> None:
    client.queues.create("others")
    poisons = []
    for queue in ("orders", "others"):
        client.queues.set_policy(queue, max_attempts=3)
        bodies = ["good"] * 10 + ["kill"] + ["good"] * 10
        poisons.append(client.send_batch(queue, bodies)[10])
    settings = {"concurrency": 4, "seconds": 0.01, "queues": ["orders", "others"]}
    with mortals(database, tmp_path / "log", **settings) as working:
        wait_until(lambda: not client.queues.metrics("others").length, working.program)
        work_off(client, working)
    assert dead(client) == poisons[:1]
    assert [each.message_id for each in client.dead_letters.list("others")] == poisons[1:]


def lose_all(working: Mortals, dsn: str) -> None:
    """Kill all workers, and end their sessions, which might extend a lease once more, and then their leases."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        theirs = (
            "select pid, substr(application_name, 8)::int from pg_stat_activity"
            " where datname = current_database() and application_name like 'mortal %'"
        )
        sessions, processes = zip(*connection.execute(theirs.encode()).fetchall(), strict=True)
        working.kill_all()
        wait_until(lambda: not any(map(is_there, processes)), working.program)
        connection.execute("select pg_terminate_backend(pid, 60000) from unnest(%s) pid", [[*sessions]])
        change_state(connection, "vt = clock_timestamp()", "lease_id <> 0")


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_two_kills_of_ten_processes_cost_long_messages_one_redelivery_each(
    client: Client, database: str, tmp_path: Path
) -> None:
    ids = client.send_batch("orders", ["wait"] * 100)
    settings = {"processes": 10, "concurrency": 10}
    with mortals(database, tmp_path / "log", **settings) as working:
        for times in (1, 2):
            working.wait_for(100 * times)
            lose_all(working, database)
        working.wait_for(300)  # side by side: none of them returns before
        working.go_on()
        handled = work_off(client, working)
    assert handled == dict.fromkeys(ids, 3)
    assert dead(client) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_message_that_waits_to_be_alone_loses_nothing_if_its_process_ends(
    client: Client, database: str, tmp_path: Path, how: signal.Signals
) -> None:
    client.queues.set_policy("orders", max_attempts=2)
    client.send("orders", "wait")
    with mortals(database, tmp_path / "log", concurrency=2, grace=0.1) as working:
        working.wait_for(1)
        [suspect] = lost(database)
        wait_until(lambda: reserved(database) == [suspect], working.program)
        if how is signal.SIGKILL:
            working.kill_all()
        else:
            working.end()
    assert [row for row in attempts(database) if row[0] == suspect] == [(suspect, 1, 1, 1)]


def lost(dsn: str) -> list[int]:
    """Send a message that kills, and lose its first lease before anything else sees it."""
    with psycopg.connect(dsn) as connection:
        connection.execute("select pgmq.send('orders', '\"kill\"')")
        return [row[0] for row in connection.execute("select msg_id from spanmq.receive('orders', 1, -1)")]


def reserved(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        query = "select msg_id from spanmq_core.later where alone = 1 and vt > clock_timestamp()"
        return [row[0] for row in connection.execute(query)]


def attempts(dsn: str) -> list[tuple[int, ...]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "select msg_id, attempts, lost, alone from spanmq_core.unsettled"
        ).fetchall()
