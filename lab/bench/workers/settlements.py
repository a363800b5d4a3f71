"""Handlers of one millisecond: what a worker makes of its slots, and how many messages one call settles.

`python -m lab.bench.workers.settlements [--rounds N] [--dsn DSN]` measures this alone. In turn: with the worker's own
`gather`, and with one of 3 ms, which settles every few messages, and how many pauses a bare loop makes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from statistics import median

import uvloop
from lab.bench.processor import nanoseconds_of, seconds_of, server_of
from lab.bench.server import add_options, fresh, serving
from lab.bench.workers.latency import arrival, in_process

from spanmq import Client, Message, Worker
from spanmq.worker.event import Event, MessageSettled, SettlingStarted
from spanmq.worker.setting import Settings

QUEUE = "settlements"
WORK_SECONDS = 0.001
# Messages for each slot count: seconds of work.
MESSAGES = {1: 1_500, 16: 8_000}
SINGLES = 60
GATHER = {"default": Settings().gather, "gather=0.003": 0.003}


@dataclass(frozen=True, slots=True)
class Handled:
    """What a message took: rate, processor time in microseconds, and how many messages one call settled."""

    rate: float
    client_us: float
    server_us: float
    of_a_call: float


def work(slots: int, gather: float, dsn: str, pipe: Connection) -> None:
    """Handle what is in the queue; send the process's id, then the number of settlements, and the end."""
    calls = 0

    def observe(event: Event) -> None:
        nonlocal calls
        calls += isinstance(event, SettlingStarted)

    observe.hears_routine = lambda: False  # type: ignore[attr-defined]

    async def handle(_: Message) -> None:
        await asyncio.sleep(WORK_SECONDS)

    pipe.send(0.0)
    pipe.send(float(os.getpid()))
    pipe.recv()
    worker = Worker(
        QUEUE, handle, dsn=dsn, concurrency=slots, gather=gather, until_empty=True, observers=[observe]
    )
    worker.run()
    pipe.send(float(calls))
    pipe.recv()


def handled(dsn: str, slots: int, gather: float) -> Handled:
    """Have a worker empty a queue."""
    count = MESSAGES[slots]
    server = server_of(dsn)
    with Client(dsn) as client, in_process(partial(work, slots, gather), dsn) as pipe:
        pid = int(arrival(pipe))
        client.send_batch(QUEUE, [{"body": "x" * 200}] * count)
        before = time.perf_counter(), nanoseconds_of(pid) / 1e9, 0.0 if server is None else seconds_of(server)
        pipe.send(None)
        calls = arrival(pipe)
        after = time.perf_counter(), nanoseconds_of(pid) / 1e9, 0.0 if server is None else seconds_of(server)
    seconds, own, servers = (now - was for now, was in zip(after, before, strict=True))
    return Handled(count / seconds, own * 1e6 / count, servers * 1e6 / count, count / calls)


def work_on_singles(dsn: str, pipe: Connection) -> None:
    """Send the time at which each message is settled."""

    def observe(event: Event) -> None:
        if isinstance(event, MessageSettled):
            pipe.send(time.perf_counter())

    async def handle(_: Message) -> None:
        await asyncio.sleep(WORK_SECONDS)

    pipe.send(0.0)
    Worker(QUEUE, handle, dsn=dsn, observers=[observe]).run()


def singles_ms(dsn: str) -> list[float]:
    """Time single messages from their send until an idle worker has settled them."""
    times = []
    with Client(dsn) as client, in_process(work_on_singles, dsn) as pipe:
        for _ in range(SINGLES):
            sent_at = time.perf_counter()
            client.send(QUEUE, 1)
            times.append((arrival(pipe) - sent_at) * 1000)
    return times[1:]


def bare_rate() -> float:
    """Return how many pauses of a handler's length a bare loop makes in a second."""

    async def pause() -> float:
        began_at = time.perf_counter()
        for _ in range(500):
            await asyncio.sleep(WORK_SECONDS)
        return 500 / (time.perf_counter() - began_at)

    return uvloop.run(pause())


def measure(dsn: str, rounds: int) -> None:
    """Measure in a new database, and print medians."""
    with fresh(dsn) as address:
        with Client(address) as client:
            client.install()
            client.queues.create(QUEUE)
        runs: dict[tuple[int, str], list[Handled]] = {}
        bare = []
        for _ in range(rounds):
            bare.append(bare_rate())
            for slots in MESSAGES:
                for name, gather in GATHER.items():
                    runs.setdefault((slots, name), []).append(handled(address, slots, gather))
        singles = singles_ms(address)
    print(
        "\n| handlers of 1 ms | messages a second | µs of processor time: worker + server | messages a settlement |"
    )
    print("|---|---:|---:|---:|")
    for (slots, name), trials in runs.items():
        cells = (
            f"{slots} at once, {name}",
            f"{median(one.rate for one in trials):,.0f}",
            f"{median(one.client_us for one in trials):.0f} + {median(one.server_us for one in trials):.0f}",
            f"{median(one.of_a_call for one in trials):.1f}",
        )
        print(f"| {' | '.join(cells)} |")
    print(
        f"\nA bare loop makes {median(bare):,.0f} pauses a second. One message, from its send until an idle"
    )
    print(f"worker has settled it: {median(singles):.1f} ms. The load average was {os.getloadavg()[0]:.1f}.")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.workers.settlements", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    with serving(options.dsn) as dsn:
        measure(dsn, 1 if options.quick else options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
