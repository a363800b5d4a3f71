"""Run it: `python -m lab.bench.replay [--messages N] [--rounds N] [--dsn DSN]`: a replay beside sending in batches.

Batches of 1,000 are sent by `pgmq.send_batch`, those of 10,000 by COPY.

By processor time, of the client and of its session in the server together: the machine's other work does not count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from statistics import median

import psycopg
from lab.bench import processor
from lab.bench.bodies import generate
from lab.bench.server import fresh, serving

BATCH = 1_000
SHARE_MIN = 0.8


def main(arguments: Sequence[str] | None = None) -> int:
    """Send, replay and print; return 1 if the replay has less than its share of the rate."""
    from spanmq import Client, schema

    parser = argparse.ArgumentParser(prog="python -m lab.bench.replay", description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
    options = parser.parse_args(arguments)
    batch = [json.loads(body) for body in generate(BATCH)]
    sent: list[float] = []
    copied: list[float] = []
    replayed: list[float] = []
    with serving(options.dsn) as server, fresh(server) as dsn, psycopg.connect(dsn, autocommit=True) as own:
        schema.install(own)
        client = Client(connection=own)

        def send() -> None:
            for _ in range(options.messages // len(batch)):
                client.send_batch("orders", batch)

        def copy() -> None:
            for _ in range(options.messages // (10 * len(batch))):
                client.send_batch("copied", batch * 10)

        def replay() -> None:
            client.subscriptions.replay("orders", "again")

        for number in range(options.rounds):
            for name in ("orders", "copied", "again"):
                client.queues.drop(name)
                client.queues.create(name)
            while client.admin.maintain(10):
                pass
            sent.append(options.messages / used(own, send))
            copied.append(options.messages / used(own, copy))
            replayed.append(options.messages / used(own, replay))
            assert client.queues.metrics("again").length == options.messages
            print(
                f"round {number + 1}: sent {sent[-1]:,.0f}, copied {copied[-1]:,.0f},"
                f" replayed {replayed[-1]:,.0f} a second of processor"
            )
    share = median(replayed) / median(sent)
    print(
        f"{'met' if share >= SHARE_MIN else 'MISSED'}: a replay has {share:.2f} of the rate, at least {SHARE_MIN}"
    )
    return int(share < SHARE_MIN)


def used(connection: psycopg.Connection, act: Callable[[], None]) -> float:
    """Return the processor time that an act takes here and in the session."""
    pid = connection.info.backend_pid
    before = processor.seconds_of(pid) + time.process_time()
    act()
    return processor.seconds_of(pid) + time.process_time() - before


if __name__ == "__main__":
    raise SystemExit(main())
