"""Run it: `python -m lab.bench.workers [--quick] [--rounds N] [--dsn DSN]`. See docs/internals/performance.md."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median, quantiles

from lab.bench import database, scripts
from lab.bench.contestants import CONTESTANTS as ENGINES
from lab.bench.contestants import PGMQ_DATABASE, UPSTREAM
from lab.bench.load import Generator, find_pgbench
from lab.bench.server import add_options, fresh, serving
from lab.bench.workers import latency, packages, queues, settlements, trial
from lab.bench.workers.targets import PGMQ, Run, Times, verdicts

from spanmq import Client

# Enough for the start of a worker not to count.
JOBS = 100_000
LATENCY_COUNT = 300
QUEUES = 1_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure in rounds, print medians and ratios; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.workers", description=__doc__)
    add_options(parser)
    parser.add_argument("--jobs", type=int, default=JOBS, help="of each worker; fewer of a very slow one")
    parser.add_argument(
        "--only", action="append", choices=trial.PROGRAMS, help="this worker, and nothing else; repeatable"
    )
    options = parser.parse_args(arguments)
    rounds, share = (1, 4) if options.quick else (options.rounds, 1)
    rates: list[float] = []
    times: dict[str, list[Times]] = {}
    measured: tuple[list[float], list[float], list[float]] = ([], [], [])
    names = _installed(options.only or list(trial.PROGRAMS))
    with serving(options.dsn) as dsn:
        for number in range(rounds):
            if not options.only:
                rates.append(pgmq_rate(dsn))
                note(f"round {number + 1}: {PGMQ} {rates[-1]:,.0f} messages/s")
            for name in names:
                result = trial.run(name, dsn, options.jobs // share, LATENCY_COUNT // rounds // share)
                times.setdefault(name, []).append(result)
                note(f"round {number + 1}: {name} {1000 / result.work_ms:,.0f} jobs/s")
        if options.only:
            return report(Run(rates, times, *measured))
        measured = latencies(dsn, LATENCY_COUNT // share)
        with fresh(dsn) as address:
            many = queues.measure(address, QUEUES // share, 60 / share)
        settlements.measure(dsn, rounds)
    missed = report(Run(rates, times, *measured))
    queues.report(many)
    return missed


def _installed(names: Sequence[str]) -> list[str]:
    """Install what the contestants need; return those that can run here, and report the others."""
    available = []
    for name in names:
        try:
            packages.interpreter_for(name)
            available.append(name)
        except packages.UnavailableError as error:
            print(f"{name} {packages.version_of(name)} is left out: {error}\n")
    return available


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
        "| worker | jobs a second | spanmq is | processor time a job, µs: send, client + server "
        "| handle, worker + server | in all | idle worker: median, ms | p99, ms |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    if run.pgmq_rates:
        print(f"| {PGMQ} | {run.rate(PGMQ):,.0f} | {_times(run, PGMQ)} | | | | | |")
    for name, times in run.times.items():
        singles = [latency_ms for one in times for latency_ms in one.latencies_ms]
        cells = (
            f"{name} {packages.version_of(name)}",
            f"{run.rate(name):,.0f}",
            _times(run, name),
            _sum(times, "send_processor_ms", "send_server_ms"),
            _sum(times, "work_processor_ms", "work_server_ms"),
            f"{run.processor_us(name):.0f}",
            f"{median(singles):.1f}",
            f"{quantiles(singles, n=100)[-1]:.1f}",
        )
        print(f"| {' | '.join(cells)} |")
    if run.bare_ms:
        print("\n| latency | median ms | p99 ms |\n|---|---:|---:|")
    for what, latencies_ms in (
        ("bare LISTEN/NOTIFY", run.bare_ms),
        ("a row on disk, NOTIFY, an empty query", run.least_ms),
        ("send to handler, idle worker", run.worker_ms),
    ):
        if latencies_ms:
            print(f"| {what} | {median(latencies_ms):.2f} | {quantiles(latencies_ms, n=100)[-1]:.2f} |")
    print("\n| target | reached | | verdict |\n|---|---:|---:|---|")
    judged = verdicts(run)
    for target, reached, verdict in judged:
        limit = f"at {'most' if target.is_most else 'least'} {target.limit:,.4g}"
        print(f"| {target.what} | {'' if reached is None else f'{reached:,.2f}'} | {limit} | {verdict} |")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return sum(verdict == "MISSED" for _, _, verdict in judged)


def _times(run: Run, name: str) -> str:
    """Return how many times as fast the tasks of spanmq are."""
    return f"{run.rate('spanmq-tasks') / run.rate(name):.2f} times" if "spanmq-tasks" in run.times else ""


def _sum(times: Sequence[Times], client: str, server: str) -> str:
    """Return the medians of a client's and the server's processor time, in microseconds."""
    return " + ".join(
        f"{1000 * median(getattr(one, name) for one in times):.0f}" for name in (client, server)
    )


def note(text: str) -> None:
    """Say on standard error what goes on."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
