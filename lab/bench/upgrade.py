"""Run it: `python -m lab.bench.upgrade [--queues N] [--messages N] [--dsn DSN]`: upgrades of a full database in use.

Clients send, receive and ack in random queues. Meanwhile the schema is upgraded to a release in which what they call
most has an argument more, so each of these functions is dropped and made again; then once more to the same release.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from lab.bench.processor import seconds_of, server_of
from lab.bench.server import fresh, serving

if TYPE_CHECKING:
    from spanmq.schema.release import Release

CLIENTS = 4
BATCH = 10
LONGEST_SECONDS = 2.0
# Files of functions, each with the end of the arguments of one, which another follows.
CHANGES = {
    "receive/receive.sql": "slots integer default 1, alone boolean default false\n)",
    "send/send.sql": "spanmq_call.send(queue_name text, msg jsonb)",
    "settle/message.sql": "spanmq_call.ack(queue text, lease_id bigint, msg_ids bigint[])",
}


class Load:
    """Clients that send, receive and ack in random queues, each in a connection of its own."""

    def __init__(self, dsn: str, queues: int) -> None:
        self.dsn = dsn
        self.queues = queues
        self.sent = self.acked = 0
        self.longest = 0.0
        self.errors: list[str] = []
        self._counts = threading.Lock()
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the clients during the block."""
        with ThreadPoolExecutor(CLIENTS) as threads:
            try:
                clients = [threads.submit(self._work, number) for number in range(CLIENTS)]
                yield
            finally:
                self._stop.set()
        for client in clients:
            client.result()

    def rate(self, server: int | None, seconds: float) -> float:
        """Return how many messages are acked in a second of the server's processor time, in so many seconds."""
        if server is None:
            raise SystemExit("The server must run on this machine.")
        before, used = self.acked, seconds_of(server)
        time.sleep(seconds)
        return (self.acked - before) / (seconds_of(server) - used)

    def take_longest(self) -> float:
        """Return the time of the longest call since this was asked last, in seconds."""
        with self._counts:
            longest, self.longest = self.longest, 0.0
        return longest

    def _work(self, number: int) -> None:
        from spanmq import Client
        from spanmq.errors import SpanmqError

        chance = random.Random(number)
        with Client(self.dsn) as client:
            while not self._stop.is_set():
                queue = f"q{chance.randrange(self.queues)}"
                began_at = time.monotonic()
                sent = acked = 0
                try:
                    sent = len(client.send_batch(queue, [{"n": n} for n in range(BATCH)]))
                    received = client.receive(queue, BATCH)
                    acked = sum(settled.outcome == "acked" for settled in client.ack(received))
                except SpanmqError as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                with self._counts:
                    self.sent += sent
                    self.acked += acked
                    self.longest = max(self.longest, time.monotonic() - began_at)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill, upgrade and print; return 1 if a call failed or took long, or a message is not there."""
    from spanmq import schema

    parser = argparse.ArgumentParser(prog="python -m lab.bench.upgrade", description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=15, help="how long a rate is measured")
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
    options = parser.parse_args(arguments)
    with serving(options.dsn) as server, fresh(server) as dsn, psycopg.connect(dsn, autocommit=True) as own:
        schema.install(own)
        messages_per_queue = options.messages // options.queues
        for number in range(options.queues):
            name = f"q{number}"
            own.execute("select pgmq.create(%s)", (name,))
            own.execute(
                "select from pgmq.send_batch(%s, array(select to_jsonb(n) from generate_series(1, %s) n))",
                (name, messages_per_queue),
            )
        load = Load(dsn, options.queues)
        with load.running(), tempfile.TemporaryDirectory() as folder:
            release, pid = later(Path(folder)), server_of(dsn)
            load.rate(pid, 2)
            before = load.rate(pid, options.seconds)
            print(
                f"before: {before:,.0f} messages a second of processor, longest cycle {load.take_longest():.2f} s"
            )
            longest = 0.0
            for _ in range(2):
                began_at = time.monotonic()
                schema.upgrade(own, release=release)
                took = time.monotonic() - began_at
                longest = max(longest, load.take_longest())
                print(f"upgrade: {took:.1f} s, longest cycle so far {longest:.2f} s")
            after = load.rate(pid, options.seconds)
            longest = max(longest, load.take_longest())
            print(f"after: {after:,.0f} messages a second of processor, {after / before:.2f} of those before")
            print(f"longest cycle {longest:.2f} s")
        row = own.execute("select sum(queue_length) from pgmq.metrics_all()").fetchone()
        there = int(row[0]) if row else 0
        expected = messages_per_queue * options.queues + load.sent - load.acked
        print(
            f"errors: {len(load.errors)} {sorted(set(load.errors))}; messages: {there:,}, expected {expected:,}"
        )
    is_met = longest <= LONGEST_SECONDS and not load.errors and there == expected
    print("met" if is_met else "MISSED")
    return int(not is_met)


def later(folder: Path) -> Release:
    """Return a release in which each function of CHANGES has an argument more."""
    from spanmq import schema
    from spanmq.schema.release import load_release

    shutil.copytree(Path(schema.__file__).parents[1] / "sql", folder, dirs_exist_ok=True)
    for file, end in CHANGES.items():
        path = folder / "functions" / file
        text = path.read_text()
        if end not in text:
            raise SystemExit(f"{file} has no {end!r}")
        path.write_text(text.replace(end, f"{end[:-1]}, later text default null)"))
    return load_release(folder, version="9.0.0")


if __name__ == "__main__":
    raise SystemExit(main())
