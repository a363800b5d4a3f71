"""Workers of a sharded queue whose server is away, or that are killed while shards are added."""

import signal
import subprocess
import threading
from collections import defaultdict
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.cli.program import PROGRAM, environment, wait_until
from tests.patience import WAIT_SECONDS
from tests.process.worker.proxy import proxying
from tests.worker.sharded import GROUPS, at_work, opened

from spanmq import Client, ShardedQueue
from spanmq.worker.event import (
    ConnectionBroken,
    ConnectionRestored,
    MessageSettled,
    ShardJoined,
)


@pytest.mark.usefixtures("quick_looks")
def test_server_that_is_away_holds_up_no_other(
    orders: ShardedQueue, dsns: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanmq.worker.observing.reporting.REPORT_SECONDS", 0.05)
    parts: dict[str, Any] = conninfo_to_dict(dsns["there"])
    if not str(parts.get("host", "")).startswith("/"):
        pytest.skip("the server is not reached through a unix socket")
    sent = [orders.send(1, group=group) for group in GROUPS]
    ours = sum(shard == "orders_0" for shard, _ in sent)
    gate = threading.Event()
    with proxying(f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}") as proxy, ExitStack() as stack:
        dsn = make_conninfo(**{**parts, "host": "127.0.0.1", "port": proxy.port})
        clients = {name: stack.enter_context(Client(each)) for name, each in {**dsns, "there": dsn}.items()}
        with at_work(
            ShardedQueue("orders", clients),
            lambda message: gate.wait(WAIT_SECONDS),
            lease=20.0,
            patience=5.0,
            concurrency=2,
        ) as record:
            proxy.set("stall")
            gate.set()
            record.wait(MessageSettled, ours, where=lambda e: e.queue == "orders_0" and e.outcome == "acked")
            # A shard is added meanwhile on the server that answers.
            orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
            record.wait(ShardJoined)
            assert {event.server for event in record.wait(ConnectionBroken)} == {"there"}
            reported_at: set[datetime] = set()

            def reports() -> int:
                reported_at.update(each.seen_at for each in orders.servers["here"].health.workers("orders_0"))
                return len(reported_at)

            wait_until(lambda: reports() > 3)
            proxy.set("pass")
            assert {event.server for event in record.wait(ConnectionRestored)} == {"there"}
            # One whose ack nobody answered may have come again: it is told of twice.
            wait_until(lambda: not orders.metrics().length)
    done = record.of(MessageSettled, lambda event: event.outcome in ("acked", "unknown"))
    assert {(event.queue, event.message_id) for event in done} == set(sent)


JOBS = """
import os, signal, time

log = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
left = int(os.environ.get("KILL_AT", "0"))

def write(*words):
    os.write(log, (" ".join(map(str, words)) + "\\n").encode())

def handle(message):
    global left
    write("begun", message.group, *message.body, message.attempt)
    time.sleep(0.001)
    left -= 1
    if left == 0:
        write("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    write("handled", message.group, *message.body)
"""


def process(folder: Path, dsns: dict[str, str], *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    servers = [f"--server={name}={dsn}" for name, dsn in dsns.items()]
    command = [*PROGRAM, "worker", "jobs:handle", "-q", "orders", *servers, "--json", *arguments]
    # Into a file: a pipe that nobody reads would fill up, and the worker wait.
    with (folder / "events").open("ab") as events:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**environment(None), **variables},
            stdout=events,
            stderr=subprocess.DEVNULL,
        )


def disorder(lines: list[str], each: int) -> list[str]:
    """Return what is wrong: handled before an earlier one was, again without a new attempt, or never."""
    done: dict[tuple[str, str], set[int]] = defaultdict(set)
    attempts: dict[tuple[str, str, int], int] = {}
    found = []
    for line in lines:
        kind, *words = line.split()
        if kind == "killed":
            continue
        group, producer, serial = words[0], words[1], int(words[2])
        if kind == "handled":
            done[group, producer].add(serial)
        else:
            if not set(range(serial)) <= done[group, producer]:
                found.append(f"{group} {producer}: {serial} began before {serial - 1} was handled")
            before = attempts.get((group, producer, serial), 0)
            if int(words[3]) <= before:
                found.append(f"{group} {producer}: {serial} came twice as attempt {before}")
            attempts[group, producer, serial] = int(words[3])
    missing = [key for key, serials in done.items() if serials != set(range(each))]
    return [*found, *(f"{key}: not all were handled" for key in missing)]


def test_shards_added_under_load_keep_the_order_of_groups_though_workers_are_killed(
    orders: ShardedQueue, dsns: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    # Longer than a worker stands still: one that begins a message as its lease ends looks like disorder.
    orders.set_policy(lease=3.0)
    each = 60
    # Before the first change, before the second and after it.
    turn, problems = threading.Barrier(3, timeout=WAIT_SECONDS), []

    def produce(number: int) -> None:
        try:
            with opened(dsns) as sharded:
                for serial in range(each):
                    if serial in (each // 4, each // 4 * 3, each - 1):
                        turn.wait()
                    for group in GROUPS[number * 5 : number * 5 + 15]:
                        sharded.send([number, serial], group=group)
        except BaseException as error:  # noqa: BLE001, raised in the test's own thread
            problems.append(error)

    producers = [threading.Thread(target=produce, args=(number,)) for number in range(2)]
    workers = [process(tmp_path, dsns, "--shards=all", KILL_AT="250")]
    try:
        workers.append(process(tmp_path, dsns, "--shards=all"))
        wait_until(lambda: (tmp_path / "events").read_text().count("worker_started") == 2, *workers)
        for producer in producers:
            producer.start()
        turn.wait()
        orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
        assert workers[0].wait(WAIT_SECONDS) == -signal.SIGKILL
        # Of this one only a part.
        workers[0] = process(tmp_path, dsns, "--shards=orders_0,orders_1")
        wait_until(orders.finish, *workers)
        # Before one of its shards goes: the other worker may do it all before the new one has begun.
        wait_until(lambda: (tmp_path / "events").read_text().count("worker_started") == 3, *workers)
        turn.wait()
        orders.change({"orders_0": "here", "orders_2": "here", "orders_3": "there"})
        turn.wait()
        for producer in producers:
            producer.join(WAIT_SECONDS)
        wait_until(lambda: orders.finish() and orders.metrics().length == 0, *workers)
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(WAIT_SECONDS) == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert problems == []
    events = (tmp_path / "events").read_text()
    for shard in ("orders_2", "orders_3"):
        assert f'"shard_joined", "queue": "{shard}"' in events
    lines = (tmp_path / "log").read_text().splitlines()
    assert "killed" in lines
    assert disorder(lines, each) == []
    assert len({tuple(line.split()[1:4]) for line in lines if line.startswith("handled")}) == 2 * 15 * each
    # Nothing is left anywhere, in the shards that were removed neither.
    for name, client in orders.servers.items():
        for queue in client.queues.list():
            assert client.queues.metrics(queue.name).length == 0, (name, queue)
