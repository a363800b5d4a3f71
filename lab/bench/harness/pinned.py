"""Hours under a pinned snapshot: `python -m lab.bench.harness.pinned [--minutes 120] [--rate 800] [--workers 64] …`.

One transaction is held for that long, and three readers overlap beside it. Each system has a fresh server, one after
the other. Writes looks.jsonl, table.md and plot.svg into a folder; ends with 1 if spanmq misses a target.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg
from lab.bench.harness.phases import idle_in_transaction, overlapping_readers
from lab.bench.harness.run import SAMPLE_SECONDS, Run, ending_in_good_order, started
from lab.bench.harness.verdicts import BACK_SECONDS, Look, Verdict, back_after, verdicts

SYSTEMS = ("spanmq", "pgmq")
COLOURS = {"spanmq": "#0072b2", "pgmq": "#d55e00"}
LOOK_SECONDS = 5.0
# The window of the harness's percentiles.
WARM_UP_SECONDS = 30.0
CLEAN_SECONDS = 300.0
LEFT = (
    "select coalesce(sum(n_dead_tup), 0)::float8, pg_database_size(current_database())::float8"
    " from pg_stat_user_tables"
)


@dataclass(slots=True)
class Pinned:
    """What was seen of one system: before, under and after the snapshot."""

    system: str
    clean: list[Look] = field(default_factory=list)
    pinned: list[Look] = field(default_factory=list)
    after: list[Look] = field(default_factory=list)

    def judged(self, rate: float) -> list[Verdict]:
        """Return how each target was met."""
        return verdicts(rate, self.clean, self.pinned, self.after)


def look(run: Run, connection: psycopg.Connection[tuple[float, float]]) -> Look:
    """Look at a system now."""
    at = time.monotonic() - run.began_at
    done = sum(run.values("completion_rate", 0.0, at)) * SAMPLE_SECONDS
    p99 = run.values("end_to_end_p99_ms", at - 2 * SAMPLE_SECONDS, at)
    [(dead_rows, disk_bytes)] = connection.execute(LEFT).fetchall()
    return Look(at, done, max(p99, default=0.0), dead_rows, disk_bytes)


@contextmanager
def looking(run: Run, seen: Pinned, phase: str, path: Path) -> Iterator[None]:
    """Look again and again during a block, and at its end, and write down at once what was seen."""
    stopped = threading.Event()

    def again() -> None:
        with psycopg.connect(run.dsn, autocommit=True) as connection, path.open("a") as file:

            def once() -> None:
                now = look(run, connection)
                getattr(seen, phase).append(now)
                print(
                    json.dumps({"system": seen.system, "phase": phase, **asdict(now)}), file=file, flush=True
                )

            while not stopped.wait(LOOK_SECONDS):
                once()
            once()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def measure(system: str, options: argparse.Namespace) -> Pinned:
    """Run one system."""
    seen = Pinned(system)
    seconds = options.minutes * 60
    path = options.folder / "looks.jsonl"
    with started(system, options.rate, options.workers, options.dsn) as run:
        time.sleep(WARM_UP_SECONDS)
        with looking(run, seen, "clean", path):
            time.sleep(min(CLEAN_SECONDS, seconds / 4))
        with looking(run, seen, "pinned", path):
            holder = threading.Thread(target=idle_in_transaction, args=(run, seconds))
            holder.start()
            overlapping_readers(run, seconds)
            holder.join()
        with looking(run, seen, "after", path):
            ended_at = time.monotonic() + BACK_SECONDS
            while time.monotonic() < ended_at and not is_back(seen):
                time.sleep(LOOK_SECONDS)
    return seen


def is_back(seen: Pinned) -> bool:
    """Return whether all has been as before for a while."""
    back = back_after(seen.clean, seen.pinned, seen.after)
    return back is not None and seen.after[-1].at - seen.pinned[-1].at - back > 2 * LOOK_SECONDS


def table(measured: Sequence[Pinned], rate: float) -> list[str]:
    """Return the lines of the table: a column for each system."""
    judged = [seen.judged(rate) for seen in measured]
    lines = [
        f"| | {' | '.join(seen.system for seen in measured)} | target |",
        "|---" * (len(measured) + 2) + "|",
    ]
    for row in zip(*judged, strict=True):
        values = [f"{each.reached:,.3g}{'' if each.is_met else ' (missed)'}" for each in row]
        lines.append(f"| {row[0].name} | {' | '.join(values)} | {row[0].target:,g} |")
    return lines


def plot(path: Path, measured: Sequence[Pinned]) -> None:
    """Draw what was seen over time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 10), layout="constrained")
    names = ("jobs done", "99th percentile, ms", "dead rows", "bytes on disk")
    for axes, name, value in zip(
        figure.subplots(4, sharex=True), names, ("done", "p99_ms", "dead_rows", "disk_bytes"), strict=True
    ):
        for seen in measured:
            looks = [*seen.clean, *seen.pinned, *seen.after]
            places = [each.at for each in looks], [getattr(each, value) for each in looks]
            axes.plot(*places, label=seen.system, color=COLOURS[seen.system], linewidth=1)
            axes.axvspan(seen.clean[-1].at, seen.pinned[-1].at, color=COLOURS[seen.system], alpha=0.06)
        axes.set(ylabel=name, yscale="log" if value == "p99_ms" else "linear")
    figure.axes[0].legend(frameon=False)
    figure.axes[-1].set_xlabel("seconds; coloured: the snapshot is held")
    figure.savefig(path)


def write(folder: Path, measured: Sequence[Pinned], options: argparse.Namespace) -> None:
    """Write the table and the plot."""
    what = f"{options.rate} jobs a second, {options.workers} workers, {options.minutes:g} minutes"
    head = [f"{what}, load average {os.getloadavg()[0]:.1f} at the end", ""]
    lines = [*head, *table(measured, options.rate)]
    (folder / "table.md").write_text("\n".join(lines) + "\n")
    plot(folder / "plot.svg", measured)
    print("\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench.harness.pinned", description=__doc__)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="separated by commas")
    parser.add_argument("--rate", type=int, default=800, help="jobs a second")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--minutes", type=float, default=120.0, help="for which the transaction is held")
    parser.add_argument("--dsn", help="measure on this server; makes and drops a database of its own")
    parser.add_argument("--folder", type=Path, default=Path("build/soak-pinned"))
    options = parser.parse_args(arguments)
    if unknown := set(options.systems.split(",")) - set(SYSTEMS):
        parser.error(f"unknown systems: {', '.join(sorted(unknown))}, of {', '.join(SYSTEMS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "looks.jsonl").unlink(missing_ok=True)
    with ending_in_good_order():
        measured = [measure(system, options) for system in options.systems.split(",")]
    write(options.folder, measured, options)
    ours = [seen for seen in measured if seen.system == "spanmq"]
    return not all(verdict.is_met for seen in ours for verdict in seen.judged(options.rate))


if __name__ == "__main__":
    sys.exit(main())
