"""Run it: `python -m bench.workers [--quick] [--rounds N] [--dsn DSN]`. docs/internals/performance.md describes it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median, quantiles

from bench import database, scripts
from bench.contestants import CONTESTANTS as ENGINES
from bench.contestants import PGMQ_DATABASE, UPSTREAM
from bench.load import Generator, find_pgbench
from bench.server import add_options, fresh, output_of, serving
from bench.workers import latency, queues
from bench.workers.targets import PGMQ, Run, Times, verdicts
from spanmq import Client

# So many that a run takes seconds, and that a start does not count.
COUNTS = {
    "spanmq": 60_000,
    "spanmq-threads": 60_000,
    "spanmq-tasks": 60_000,
    "spanmq-tasks-threads": 60_000,
    "procrastinate": 3_000,
    "pgqueuer": 20_000,
}
LATENCY_COUNT = 300
QUEUES = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in rounds, print medians and ratios; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    rounds, share = (1, 4) if options.quick else (options.rounds, 1)
    rates: list[float] = []
    times: dict[str, list[Times]] = {name: [] for name in COUNTS}
    with serving(options.dsn) as dsn:
        for number in range(rounds):
            rates.append(pgmq_rate(dsn))
            note(f"round {number + 1}: {PGMQ} {rates[-1]:,.0f} messages/s")
            for name, count in COUNTS.items():
                times[name].append(run(dsn, name, count // share))
                note(f"round {number + 1}: {name} {1000 / times[name][-1].work_ms:,.0f} messages/s")
        measured = latencies(dsn, LATENCY_COUNT // share)
        with fresh(dsn) as address:
            many = queues.measure(address, QUEUES // share, 60 / share)
    missed = report(Run(rates, times, *measured))
    queues.report(many)
    return missed


def pgmq_rate(dsn: str) -> float:
    """Return upstream's rate of send, read and delete, a hundred at once: the measure of this machine."""
    upstream = database.create(dsn, PGMQ_DATABASE)
    try:
        upstream.create_queue()
        engine = next(engine for engine in ENGINES if engine.name == UPSTREAM)
        generator = Generator(find_pgbench(), os.cpu_count() or 1)
        script = scripts.cycle(engine, 100)
        load = generator.run(upstream.dsn, script, clients=1, seconds=3, variables=scripts.VARIABLES)
        return load.rate * 100
    finally:
        database.drop(dsn, PGMQ_DATABASE)


def run(dsn: str, name: str, count: int) -> Times:
    """Run one contestant in a database and a process of its own; return what it prints."""
    with fresh(dsn) as address:
        output = output_of(name, "bench.workers.contestant", name, address, str(count))
    return Times(*map(float, output.split()[-4:]))


def latencies(dsn: str, count: int) -> tuple[list[float], list[float], list[float]]:
    """Time all ways in one database."""
    with fresh(dsn) as address:
        with Client(address, maintain_interval=1.0) as client:
            client.install()
            client.queues.create("latency")
            _use(client, "latency")
        return latency.all_ms(address, count)


def _use(client: Client, queue: str) -> None:
    """Make of a new queue one that is in use: docs/internals/storage.md, lanes."""
    client.send_batch(queue, range(2_000))
    client.queues.purge(queue)
    while client.admin.maintain():
        pass


def report(run: Run) -> int:
    """Print the tables; return the number of targets that were missed."""
    print(
        "| worker | handled a second | spanmq is | round trip, ms | its processor time, ms | send | handle |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in (PGMQ, *run.times):
        cells = [f"{run.rate(name):,.0f}", f"{run.rate('spanmq') / run.rate(name):.2f} times"]
        if times := run.times.get(name):
            send = median(each.send_processor_ms for each in times)
            work = median(each.work_processor_ms for each in times)
            figures = (run.round_trip_ms(name), run.processor_ms(name), send, work)
            cells += [f"{each:.3f}" for each in figures]
        print(f"| {' | '.join([name, *cells, *[''] * (6 - len(cells))])} |")
    print("\n| latency | median ms | p99 ms |\n|---|---:|---:|")
    for what, latencies_ms in (
        ("bare LISTEN/NOTIFY", run.bare_ms),
        ("a row on disk, NOTIFY, an empty query", run.least_ms),
        ("send to handler, idle worker", run.worker_ms),
    ):
        print(f"| {what} | {median(latencies_ms):.2f} | {quantiles(latencies_ms, n=100)[-1]:.2f} |")
    print("\n| target | reached | | verdict |\n|---|---:|---:|---|")
    judged = verdicts(run)
    for target, reached, verdict in judged:
        limit = f"at {'most' if target.is_most else 'least'} {target.limit:g}"
        print(f"| {target.what} | {reached:.2f} | {limit} | {verdict} |")
    return sum(verdict == "MISSED" for _, _, verdict in judged)


def note(text: str) -> None:
    """Say on standard error what goes on."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
