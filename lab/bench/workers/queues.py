"""One worker of many queues: what it costs while idle, and how soon it has a message of any of them.

`python -m lab.bench.workers.queues [--queues N] [--seconds S] [--dsn DSN]` measures this alone.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from statistics import median, quantiles

import psycopg
from lab.bench.processor import nanoseconds_of, seconds_of, server_of
from lab.bench.server import fresh, serving
from lab.bench.workers.latency import arrival, in_process

from spanmq import Client, Message, Worker

SENDS = 200
# Long enough for the worker to be idle again, and to have found nothing for a while.
PAUSES_MS = (5.0, 400.0)


@dataclass(frozen=True, slots=True)
class Many:
    """What was measured: an idle minute, sends to random queues, and a message to each queue.

    The processor time of a server on another machine is 0.
    """

    queues: int
    statements: float
    worker_seconds: float
    server_seconds: float
    connections: int
    latencies_ms: Sequence[float]
    # From the end of the send, which waits for the disk; none below 0.
    after_send_ms: Sequence[float]
    sent_seconds: float
    all_seconds: float
    all_processor_seconds: Sequence[float]


def measure(dsn: str, queues: int, seconds: float) -> Many:
    """Measure in a new database with so many queues; `seconds` is the length of the idle time."""
    names = [f"q{number}" for number in range(queues)]
    with Client(dsn) as client:
        client.install()
        for name in names:
            client.queues.create(name)
        _rest(dsn, client)
        with in_process(partial(work, names), dsn) as arrivals:
            pid = int(arrival(arrivals))
            client.send(names[0], 0)
            arrival(arrivals)
            time.sleep(10)  # the first polls follow each other sooner, and the first report comes
            idle = _idle(dsn, pid, seconds)
            chosen = random.Random(1)
            latencies, after_send = [], []
            for _ in range(SENDS):
                time.sleep(chosen.uniform(*PAUSES_MS) / 1000)
                sent_at = time.perf_counter()
                client.send(chosen.choice(names), 1)
                returned_at = time.perf_counter()
                began_at = arrival(arrivals)
                latencies.append((began_at - sent_at) * 1000)
                after_send.append(max(began_at - returned_at, 0.0) * 1000)
            before = _processor_seconds(dsn, pid)
            began_at = time.perf_counter()
            for name in names:
                client.send(name, 1)
            sent_seconds = time.perf_counter() - began_at
            all_seconds = max(arrival(arrivals) for _ in names) - began_at
            used = [now - was for now, was in zip(_processor_seconds(dsn, pid), before, strict=True)]
    return Many(queues, *idle, latencies, after_send, sent_seconds, all_seconds, used)


def work(queues: Sequence[str], dsn: str, pipe: Connection) -> None:
    """Send the process's id, then the time of the start of each handler."""

    async def handle(_: Message) -> None:
        pipe.send(time.perf_counter())

    pipe.send(0.0)
    pipe.send(float(os.getpid()))
    Worker(queues, handle, dsn=dsn).run()


def _rest(dsn: str, client: Client) -> None:
    """Do what autovacuum and maintenance would otherwise do with the new queues meanwhile."""
    while client.admin.maintain():
        pass
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("vacuum (analyze)")


def _idle(dsn: str, pid: int, seconds: float) -> tuple[float, float, float, int]:
    """Return statements, both processor times, each a minute, and the worker's connections."""
    before = [_statements(dsn), *_processor_seconds(dsn, pid)]
    time.sleep(seconds)
    after = [_statements(dsn), *_processor_seconds(dsn, pid)]
    statements, worker, server = ((now - was) * 60 / seconds for now, was in zip(after, before, strict=True))
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select count(*) - 2 from pg_stat_activity"
            " where datname = current_database() and backend_type = 'client backend'"
        ).fetchone()
    # Of the others, one reads this, and one sends.
    return statements, worker, server, int(row[0] if row else 0)


def _processor_seconds(dsn: str, pid: int) -> tuple[float, float]:
    """Return what the worker and the server have used; 0 for a server on another machine."""
    server = server_of(dsn)
    return nanoseconds_of(pid) / 1e9, 0.0 if server is None else seconds_of(server)


def _statements(dsn: str) -> float:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "select xact_commit from pg_stat_database where datname = current_database()"
        ).fetchone()
    return float(row[0]) if row else 0.0


def report(many: Many) -> None:
    """Print what was measured, with the load of the machine."""
    print(f"\n| a worker of {many.queues:,} queues | |\n|---|---:|")
    for what, figure in (
        ("idle: statements a minute", f"{many.statements:.0f}"),
        (
            "idle: processor time a minute, worker + server, s",
            f"{many.worker_seconds:.2f} + {many.server_seconds:.2f}",
        ),
        ("connections", f"{many.connections}"),
        (
            "send to a random queue until its handler begins: median, p99, ms",
            f"{median(many.latencies_ms):.1f}, {quantiles(many.latencies_ms, n=100)[-1]:.1f}",
        ),
        (
            "end of such a send until its handler begins: median, p99, ms",
            f"{median(many.after_send_ms):.1f}, {quantiles(many.after_send_ms, n=100)[-1]:.1f}",
        ),
        (
            "one message to each queue, s until all are sent, and until the last handler begins",
            f"{many.sent_seconds:.2f}, {many.all_seconds:.2f}",
        ),
        (
            "its processor time, worker + server, s",
            " + ".join(f"{seconds:.2f}" for seconds in many.all_processor_seconds),
        ),
        ("load of the machine", f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"),
    ):
        print(f"| {what} | {figure} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.workers.queues", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="the length of the idle time")
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
    options = parser.parse_args(arguments)
    with serving(options.dsn) as dsn, fresh(dsn) as address:
        report(measure(address, options.queues, options.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
