"""All engines under the same load, one after the other, in two rounds."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean
from typing import Final

from spanmq_lab.simulate.options import ENGINES, Options
from spanmq_lab.simulate.report import Report, duration_text, known

ROUNDS: Final = 2


def rounds(options: Options, count: int = ROUNDS) -> Iterator[Options]:
    """Yield the options of each run: every second round in reverse order, so that no engine is always first."""
    for number in range(count):
        for engine in ENGINES if number % 2 == 0 else reversed(ENGINES):
            # Spark's sink writes to queues only.
            producer = options.producer if engine == "spanmq" else "client"
            yield replace(options, engine=engine, producer=producer)


def comparison(reports: Sequence[Report]) -> tuple[list[str], list[list[object]]]:
    """Return a table: a row for each engine, with the mean of its runs and its ratio to polling."""
    by_engine = {engine: [report for report in reports if report.engine == engine] for engine in ENGINES}
    classic = handled_in_time(by_engine["polling"])
    rows: list[list[object]] = []
    for engine, runs in by_engine.items():
        if not runs:
            continue
        handled = handled_in_time(runs)
        rows.append(
            [
                engine,
                ", ".join(f"{report.handled:,}" for report in runs),
                ", ".join(f"{report.seconds:.1f}" for report in runs),
                f"{mean(report.rate for report in runs):,.1f}",
                f"{handled / classic:.1f}" if classic else "-",
                ", ".join(duration_text(report.send_to_done.p99) for report in runs),
                f"{mean(report.utilisation for report in runs):.0%}",
                sum(report.idle_polls for report in runs),
                ", ".join(known(report.server_cpu_seconds, "{:.1f}") for report in runs),
                "yes" if all(report.passed for report in runs) else faults(runs),
            ]
        )
    names = ["engine", "handled", "seconds", "a second", "to polling", "send to done p99", "busy"]
    return [*names, "idle polls", "server CPU", "order held"], rows


def handled_in_time(runs: Sequence[Report]) -> float:
    """Return the messages handled a second, over all runs of an engine."""
    seconds = sum(report.seconds for report in runs)
    return sum(report.handled for report in runs) / seconds if seconds else 0.0


def faults(runs: Sequence[Report]) -> str:
    """Name the checks that failed."""
    failed = dict.fromkeys(check.name for report in runs for check in report.checks if not check.passed)
    return f"NO: not {', not '.join(failed)}"
