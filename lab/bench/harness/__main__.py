"""Run the harness's phases without its containers: `python -m lab.bench.harness [--rate 200] [--workers 16] …`.

Two processes of an adapter on a fresh server for each system, and PGMQ beside. Writes samples.jsonl, table.md and
plot.svg into a folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from lab.bench import processor
from lab.bench.harness.phases import (
    clean,
    exhausted_pool,
    idle_in_transaction,
    killed_server,
    killed_workers,
    overlapping_readers,
    restarted_server,
)
from lab.bench.harness.run import PEERS, SAMPLE_SECONDS, Run, ending_in_good_order, started
from lab.bench.workers import packages

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SYSTEMS: Final = ("spanmq", "spanmq-pgmq", "pgmq")
COLOURS: Final = {
    "spanmq": "#0072b2",
    "spanmq-pgmq": "#009e73",
    "pgmq": "#d55e00",
    "pgque": "#cc79a7",
    "procrastinate": "#999999",
    "pgboss": "#e69f00",
}
DEAD_TUPLES = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables"
# The last ones need a server of our own.
OF_OWN_SERVER: Final = (restarted_server, killed_server)
# The adapters' percentiles cover a window: the start of a process is not part of the clean phase.
WINDOW_SECONDS: Final = 30.0
PHASES: Final = {
    "warm-up": (clean, 0.25),
    "clean": (clean, 1.0),
    "idle in transaction": (idle_in_transaction, 2.0),
    "recovery": (clean, 0.5),
    "overlapping readers": (overlapping_readers, 2.0),
    "recovery after readers": (clean, 0.5),
    "killed workers": (killed_workers, 1.0),
    # A lease of the killed ends after 30 s.
    "recovery after kills": (clean, 0.75),
    "exhausted pool": (exhausted_pool, 1.0),
    "recovery after exhaustion": (clean, 0.5),
    "restarted server": (restarted_server, 1.0),
    "recovery after restart": (clean, 0.5),
    "killed server": (killed_server, 1.0),
    # A lease whose receiver has lost its answer ends after 30 s.
    "recovery after crash": (clean, 0.75),
}


@dataclass(frozen=True, slots=True)
class Row:
    """What one system did in one phase; rates a second, a job's processor time in the server in microseconds.

    That is None over a restart. `ended`: processes that ended by themselves.
    """

    system: str
    phase: str
    since: float
    until: float
    sent: float
    done: float
    p99_ms: float
    depth: float
    server_us: float | None
    dead_tuples: int
    ended: int


def measure(system: str, options: argparse.Namespace) -> tuple[Run, list[Row]]:
    """Run all phases of a system on a server of its own."""
    with started(system, options.rate, options.workers, options.dsn, options.harness) as run:
        rows = []
        for phase, (act, share) in PHASES.items():
            if run.server is None and act in OF_OWN_SERVER:
                break
            server = processor.server_of(run.dsn)
            since, used_before = (
                time.monotonic() - run.began_at,
                processor.seconds_of(server) if server else 0.0,
            )
            act(run, max(options.seconds * share, WINDOW_SECONDS if phase == "warm-up" else 0.0))
            until = time.monotonic() - run.began_at
            is_same = server is not None and processor.server_of(run.dsn) == server
            used = processor.seconds_of(server) - used_before if server is not None and is_same else None
            rows.append(_row(run, phase, since, until, used))
            print(_line(rows[-1]), flush=True)
    return run, rows


def _row(run: Run, phase: str, since: float, until: float, used: float | None) -> Row:
    lasting = until - since
    sent, done = (
        sum(run.values(metric, since, until)) * SAMPLE_SECONDS / lasting
        for metric in ("enqueue_rate", "completion_rate")
    )
    # Of the last seconds, and the process that has the higher one.
    lately = (until - 2 * SAMPLE_SECONDS, until)
    # Procrastinate's adapter has none from end to end.
    p99 = run.values("end_to_end_p99_ms", *lately) or run.values("claim_p99_ms", *lately)
    depth = run.values("queue_depth", since, until)
    with psycopg.connect(run.dsn) as connection:
        [(dead,)] = connection.execute(DEAD_TUPLES).fetchall()
    server_us = None if used is None else used * 1e6 / max(done * lasting, 1)
    return Row(
        run.system,
        phase,
        since,
        until,
        sent,
        done,
        max(p99, default=0.0),
        depth[-1] if depth else 0,
        server_us,
        dead,
        run.start_ended(),
    )


def _line(row: Row) -> str:
    values = [row.system, row.phase, f"{row.sent:.0f}", f"{row.done:.0f}", f"{row.p99_ms:,.0f}"]
    values += [f"{row.depth:,.0f}", "" if row.server_us is None else f"{row.server_us:,.0f}"]
    return f"| {' | '.join((*values, f'{row.dead_tuples:,}', str(row.ended)))} |"


def write(folder: Path, measured: Sequence[tuple[Run, list[Row]]], command: str) -> None:
    """Write the table, the samples and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    head = "| system | phase | sent/s | done/s | p99 ms | depth | server µs | dead tuples | ended |"
    lines = [f"`{command}`, load average {os.getloadavg()[0]:.1f} at the end", "", head, "|---" * 9 + "|"]
    lines += [_line(row) for _, rows in measured for row in rows]
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    with (folder / "samples.jsonl").open("w") as file:
        for run, _ in measured:
            for at, instance, metric, value in run.samples:
                sample = {"system": run.system, "at": at, "instance": instance, metric: value}
                print(json.dumps(sample), file=file)
    plot(folder / "plot.svg", measured)


def plot(path: Path, measured: Sequence[tuple[Run, list[Row]]]) -> None:
    """Draw the rates and latencies of all systems over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7), layout="constrained")
    rates, latencies = figure.subplots(2, sharex=True)
    for run, _ in measured:
        for axes, metric, combine in (
            (rates, "completion_rate", sum),
            (latencies, "end_to_end_p99_ms", max),
        ):
            by_time: dict[float, list[float]] = defaultdict(list)
            for at, _, name, value in run.samples:
                if name == metric:
                    by_time[round(at / SAMPLE_SECONDS) * SAMPLE_SECONDS].append(value)
            times = sorted(by_time)
            axes.plot(
                times,
                [combine(by_time[at]) for at in times],
                label=run.system,
                color=COLOURS[run.system],
                linewidth=1,
            )
    latencies.set_yscale("log")
    latencies.set(xlabel="seconds", ylabel="99th percentile from send to end, ms")
    rates.set(ylabel="jobs done a second", ylim=(0, None))
    rates.legend(frameon=False, loc="lower right")
    for place, row in enumerate(measured[0][1]):
        _mark(rates, row, place)
        _mark(latencies, row, place)
        place_of_text = {"xycoords": ("data", "axes fraction"), "fontsize": 8, "va": "bottom", "rotation": 20}
        rates.annotate(row.phase, (row.since, 1.01), **place_of_text)
    figure.savefig(path)


def _mark(axes: Axes, row: Row, place: int) -> None:
    if place % 2:
        axes.axvspan(row.since, row.until, color="#bbbbbb", alpha=0.2, linewidth=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.harness", description=__doc__)
    parser.add_argument("--systems", help="separated by commas; all by default")
    parser.add_argument("--harness", type=Path, help="a clone of it, of which the adapters of peers are run")
    parser.add_argument("--rate", type=int, default=200, help="jobs a second")
    parser.add_argument("--workers", type=int, default=16)
    lasting = "of the clean phase; the others last from half as long to twice, the warm-up half a minute"
    parser.add_argument("--seconds", type=float, default=60.0, help=lasting)
    parser.add_argument("--dsn", help="measure on this server; makes and drops a database of its own")
    parser.add_argument("--folder", type=Path, default=Path("build/bench-harness"))
    command = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(command)
    known = [*SYSTEMS, *(PEERS if options.harness else ())]
    systems = options.systems.split(",") if options.systems else known
    if unknown := set(systems) - set(known):
        parser.error(f"unknown systems: {', '.join(sorted(unknown))}, of {', '.join(known)}")
    measured = []
    with ending_in_good_order():
        for system in systems:
            try:
                measured.append(measure(system, options))
            except (RuntimeError, packages.UnavailableError) as error:
                print(f"{system}: {error}", flush=True)
    write(options.folder, measured, " ".join(["python -m lab.bench.harness", *_public(command)]))
    print(f"table.md, plot.svg and samples.jsonl are in {options.folder}")
    return int(len(measured) < len(systems))


def _public(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments without a DSN, which may hold a password, and without folders of this machine."""
    own = ("--dsn", "--harness", "--folder")
    for before, argument in itertools.pairwise(["", *arguments]):
        if before not in own and not argument.startswith(own):
            yield argument


if __name__ == "__main__":
    sys.exit(main())
