"""From a send to the start of the handler of an idle worker, beside a bare LISTEN and NOTIFY.

Between the two stands what no queue can do without: a row that is on disk before it is announced, and a
statement of who heard of it.

Who receives is a process of its own: in this one it would wait for the interpreter, too. The clock is the
machine's, the same for all processes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psycopg

from spanmq import Client, Message, Worker

PAUSES_MS = (5.0, 40.0)  # longer than the throttle of notifications, and shorter
TIMEOUT_SECONDS = 60.0
ROUNDS = 3
# A queue has a lane when it has had a thousand.
QUEUE_MESSAGES = 1_100
TABLE = "create table if not exists public.bench_noted (at timestamptz default now(), body jsonb)"
ROW = b"""with row as (insert into public.bench_noted (body) values ('{"number": 1}'))
    select pg_notify('bench_latency', '')"""


def all_ms(dsn: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """Time the ways in turn, `count` times each: a machine that is busy is so for all."""
    bare: list[float] = []
    least: list[float] = []
    worker: list[float] = []
    for _ in range(ROUNDS):
        bare += bare_ms(dsn, -(-count // ROUNDS))
        least += least_ms(dsn, -(-count // ROUNDS))
        worker += worker_ms(dsn, -(-count // ROUNDS))
    return bare[:count], least[:count], worker[:count]


def bare_ms(dsn: str, count: int) -> list[float]:
    """Time a NOTIFY until it has come, `count` times: a commit, then what a waiting session hears."""
    with psycopg.connect(dsn, autocommit=True) as sender, in_process(hear, dsn) as arrivals:
        return _times(count, arrivals, lambda: sender.execute("notify bench_latency"))


def least_ms(dsn: str, count: int) -> list[float]:
    """Time a row on disk with its NOTIFY, until who heard it has asked the server something."""
    with (
        psycopg.connect(dsn, autocommit=True) as sender,
        in_process(partial(hear, asks=True), dsn) as arrivals,
    ):
        sender.execute(TABLE)
        return _times(count, arrivals, lambda: sender.execute(ROW))


def worker_ms(dsn: str, count: int) -> list[float]:
    """Time a send until the handler begins, `count` times; the worker is idle each time."""
    with Client(dsn) as client, in_process(work, dsn) as arrivals:
        return _times(count, arrivals, lambda: client.send("latency", {"number": 1}))


def hear(dsn: str, pipe: Connection, *, asks: bool = False) -> None:
    """Tell when each notification came, or was followed by the answer to a query."""
    with (
        psycopg.connect(dsn, autocommit=True) as connection,
        psycopg.connect(dsn, autocommit=True) as other,
    ):
        connection.execute("listen bench_latency")
        pipe.send(0.0)
        for _ in connection.notifies():
            if asks:
                other.execute("select 1")
            pipe.send(time.perf_counter())


def work(dsn: str, pipe: Connection) -> None:
    """Tell when the handler began with each message."""

    async def handle(_: Message) -> None:
        pipe.send(time.perf_counter())

    with Client(dsn) as client:
        _use(client)
        # The first message tells that it works.
        client.send("latency", {"number": 0})
    Worker("latency", handle, dsn=dsn).run()


def _use(client: Client) -> None:
    """Let the queue be one in use, which a few hundred messages don't make of it, and empty."""
    client.send_batch("latency", [{"number": 0}] * QUEUE_MESSAGES)
    client.pop("latency", QUEUE_MESSAGES)
    for _ in range(20):
        client.admin.maintain()


@contextmanager
def in_process(target: Callable[[str, Connection], None], dsn: str) -> Iterator[Connection]:
    """Run a function in a process until the block ends; the function sends something when it is ready."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(dsn, theirs), daemon=True)
    process.start()
    try:
        arrival(ours)
        yield ours
    finally:
        process.terminate()
        process.join(TIMEOUT_SECONDS)


def arrival(pipe: Connection) -> float:
    """Return what the process sends next."""
    if not pipe.poll(TIMEOUT_SECONDS):
        raise RuntimeError("nothing arrived")
    at: float = pipe.recv()
    return at


def _times(count: int, arrivals: Connection, send: Callable[[], object]) -> list[float]:
    """Send again and again, with pauses, and wait for each."""
    chosen = random.Random(1)
    times = []
    for _ in range(count):
        time.sleep(chosen.uniform(*PAUSES_MS) / 1000)
        sent_at = time.perf_counter()
        send()
        times.append((arrival(arrivals) - sent_at) * 1000)
    return times
