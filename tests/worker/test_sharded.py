"""A worker of a sharded queue: all shards or a part, on two databases, added and removed while it works."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.cli.program import PROGRAM, environment
from tests.patience import WAIT_SECONDS
from tests.worker.proxy import proxying
from tests.worker.running import Record, working

from spanmq import AsyncClient, AsyncShardedQueue, Client, Message, ShardedQueue, Worker
from spanmq.errors import InvalidArgumentError, QueueNotFoundError
from spanmq.testing import new_database, with_database
from spanmq.worker.event import (
    ConnectionRestored,
    MessageSettled,
    ShardJoined,
    ShardLeft,
    WorkerStarted,
)

GROUPS = [f"order-{number}" for number in range(20)]


@pytest.fixture
def dsns(spanmq_server: str, spanmq_template: str) -> Iterator[dict[str, str]]:
    """Two databases, which have as little of each other as two servers."""
    with ExitStack() as stack:
        yield {
            place: with_database(
                spanmq_server, stack.enter_context(new_database(spanmq_server, template=spanmq_template))
            )
            for place in ("here", "there")
        }


@pytest.fixture
def orders(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with opened(dsns) as sharded:
        sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
        yield sharded


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq.worker.roster.LOOK_SECONDS", 0.05)


@contextmanager
def opened(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with ExitStack() as stack:
        clients = {
            name: stack.enter_context(Client(dsn, maintain_interval=None, pool_size=3))
            for name, dsn in dsns.items()
        }
        yield ShardedQueue("orders", clients)


def acked(record: Record, count: int) -> list[MessageSettled]:
    return record.wait(MessageSettled, count, where=lambda event: event.outcome == "acked")


@contextmanager
def at_work(sharded: Any, handler: Any, **settings: Any) -> Iterator[Record]:
    with working(None, handler, queues=sharded, **settings) as record:
        yield record


def test_worker_receives_from_all_shards_of_all_servers(orders: ShardedQueue) -> None:
    sent = [orders.send(number, group=group) for group in GROUPS for number in range(3)]
    with at_work(orders, lambda message: None) as record:
        settled = acked(record, len(sent))
        assert record.of(WorkerStarted)[0].queues == ("orders_0", "orders_1")
    assert sorted((event.queue, event.message_id) for event in settled) == sorted(sent)
    assert orders.metrics().length == 0


def test_worker_receives_from_a_part_of_the_shards(orders: ShardedQueue) -> None:
    sent = [orders.send(1, group=group) for group in GROUPS]
    theirs = [each for each in sent if each[0] == "orders_1"]
    with at_work(orders, lambda message: None, shards="orders_1") as record:
        assert {event.queue for event in acked(record, len(theirs))} == {"orders_1"}
    assert orders.metrics().length == len(sent) - len(theirs) > 0


def test_worker_takes_an_asynchronous_sharded_queue(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    orders.send(1, group="a")
    sharded = AsyncShardedQueue("orders", {name: AsyncClient(dsn) for name, dsn in dsns.items()})
    with at_work(sharded, lambda message: None) as record:
        acked(record, 1)


def test_handler_writes_where_its_message_is(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    for dsn in dsns.values():
        with psycopg.connect(dsn) as connection:
            connection.execute("create table shipped (shard text, number bigint)")
    sent = sorted(orders.send(1, group=group) for group in GROUPS)

    async def handle(message: Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into shipped values (%s, %s)", [message.queue, message.message_id])

    with at_work(orders, handle) as record:
        acked(record, len(sent))
    found = {}
    for name, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            found[name] = connection.execute("select shard, number from shipped").fetchall()
    assert {shard for shard, _ in found["here"]} == {"orders_0"}
    assert sorted(found["here"] + found["there"]) == sent


@pytest.mark.usefixtures("quick_looks")
def test_shards_that_are_added_and_removed_are_followed(orders: ShardedQueue) -> None:
    with at_work(orders, lambda message: None, poll_interval=0.05) as record:
        orders.change({"orders_1": "there", "orders_2": "here"})
        assert [event.queue for event in record.wait(ShardJoined)] == ["orders_2"]
        for group in GROUPS:
            orders.send(1, group=group)
        settled = acked(record, len(GROUPS))
        assert {event.queue for event in settled} == {"orders_1", "orders_2"}
        # Empty, but a part of the change until it is over.
        assert record.of(ShardLeft) == []
        assert orders.finish()
        assert [event.queue for event in record.wait(ShardLeft)] == ["orders_0"]
        orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
        record.wait(ShardJoined, where=lambda event: event.queue == "orders_0")
        assert orders.finish()
        sent = [orders.send(2, group=group) for group in GROUPS]
        assert {shard for shard, _ in sent} == {"orders_0", "orders_1", "orders_2"}
        acked(record, 2 * len(GROUPS))


@pytest.mark.usefixtures("quick_looks")
def test_removed_shard_is_received_from_until_nothing_is_in_it(orders: ShardedQueue) -> None:
    end = threading.Event()
    with at_work(orders, lambda message: end.wait(WAIT_SECONDS), concurrency=1) as record:
        orders.servers["here"].send_batch("orders_0", range(5))
        # As after a change that somebody ended without asking: the map says nothing of it any more.
        there = orders.shards()
        for client in orders.servers.values():
            client.forget_shards("orders")
            client.set_shards(
                type(there)(queue="orders", epoch=5, routing="group", shards={"orders_1": "there"})
            )
        end.set()
        assert [event.queue for event in record.wait(ShardLeft)] == ["orders_0"]
        assert len(acked(record, 5)) == 5


@pytest.mark.usefixtures("quick_looks")
def test_shard_that_is_dropped_is_left(orders: ShardedQueue) -> None:
    with at_work(orders, lambda message: None) as record:
        orders.change({"orders_1": "there"})
        assert orders.finish()
        orders.servers["here"].drop_queue("orders_0")
        record.wait(ShardLeft)
        orders.send(1, group="a")
        acked(record, 1)


@pytest.mark.usefixtures("quick_looks")
def test_server_that_is_away_holds_up_no_other(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    parts: dict[str, Any] = conninfo_to_dict(dsns["there"])
    if not str(parts.get("host", "")).startswith("/"):
        pytest.skip("the server is not reached through a unix socket")
    sent = [orders.send(1, group=group) for group in GROUPS]
    ours = sum(shard == "orders_0" for shard, _ in sent)
    gate = threading.Event()
    with proxying(f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}") as proxy, ExitStack() as stack:
        dsn = make_conninfo(**{**parts, "host": "127.0.0.1", "port": proxy.port})
        clients = {
            name: stack.enter_context(Client(each, maintain_interval=None))
            for name, each in {**dsns, "there": dsn}.items()
        }
        with at_work(
            ShardedQueue("orders", clients),
            lambda message: gate.wait(WAIT_SECONDS),
            lease=2.0,
            patience=0.5,
            concurrency=2,
        ) as record:
            proxy.set("stall")
            gate.set()
            record.wait(MessageSettled, ours, where=lambda e: e.queue == "orders_0" and e.outcome == "acked")
            # A shard is added meanwhile on the server that answers.
            orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
            record.wait(ShardJoined)
            proxy.set("pass")
            record.wait(ConnectionRestored)
            # One whose ack nobody answered may have come again: it is told of twice.
            wait_until(lambda: not orders.metrics().length, [])
    done = record.of(MessageSettled, lambda event: event.outcome in ("acked", "unknown"))
    assert {(event.queue, event.message_id) for event in done} == set(sent)


def test_what_makes_no_sense_is_refused(orders: ShardedQueue, dsns: dict[str, str]) -> None:
    refused: list[dict[str, Any]] = [
        {"queues": orders, "dsn": dsns["here"]},
        {"queues": "orders"},
        {"queues": "orders", "dsn": dsns["here"], "shards": "orders_0"},
        {"queues": orders, "shards": []},
        {"queues": orders, "shards": ["orders_0", "orders_0"]},
    ]
    for arguments in refused:
        with pytest.raises(InvalidArgumentError):
            Worker(arguments.pop("queues"), print, **arguments)
    here = ShardedQueue("orders", {"here": orders.servers["here"]})
    other = ShardedQueue("other", orders.servers)
    for sharded, shards, error in (
        (orders, ["orders_7"], InvalidArgumentError),
        (here, None, InvalidArgumentError),  # the map names a server more
        (other, None, QueueNotFoundError),
    ):
        with pytest.raises(error):
            Worker(sharded, print, shards=shards, observers=()).run()
    orders.send_batch([1, 2], group="a")
    with at_work(here, lambda message: None, shards=["orders_0"]):
        pass  # of the other server nothing is asked


# Real processes.

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
    """Give what is wrong: handled before an earlier one was, again without a new attempt, or never."""
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


@pytest.mark.slow
@pytest.mark.crash
def test_shards_added_under_load_keep_the_order_of_groups_though_workers_are_killed(
    orders: ShardedQueue, dsns: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text(JOBS)
    orders.set_policy({"lease": 1.0})
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
    workers = [
        process(tmp_path, dsns, "--shards=all", KILL_AT="250"),
        process(tmp_path, dsns, "--shards=all"),
    ]
    try:
        wait_until(lambda: (tmp_path / "events").read_text().count("worker_started") == 2, workers)
        for producer in producers:
            producer.start()
        turn.wait()
        orders.change({"orders_0": "here", "orders_1": "there", "orders_2": "here"})
        assert workers[0].wait(WAIT_SECONDS) == -signal.SIGKILL
        # Of this one only a part.
        workers[0] = process(tmp_path, dsns, "--shards=orders_0,orders_1")
        wait_until(orders.finish, workers)
        # Before one of its shards goes: the other worker may do it all before the new one has begun.
        wait_until(lambda: (tmp_path / "events").read_text().count("worker_started") == 3, workers)
        turn.wait()
        orders.change({"orders_0": "here", "orders_2": "here", "orders_3": "there"})
        turn.wait()
        for producer in producers:
            producer.join(WAIT_SECONDS)
        wait_until(lambda: orders.finish() and orders.metrics().length == 0, workers)
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
        for queue in client.list_queues():
            assert client.metrics(queue.name).length == 0, (name, queue)


def wait_until(is_so: Callable[[], bool], workers: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        assert [worker.poll() for worker in workers] == [None] * len(workers)
