"""Run the benchmark: `python -m lab.bench [--quick] [--only PATTERN] …`. docs/internals/performance.md describes it."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import psycopg
from lab.bench import database, environment, report
from lab.bench.cases import experiments, soak_experiments
from lab.bench.contestants import CONTESTANTS, Contestant
from lab.bench.load import Generator, find_pgbench
from lab.bench.plan import FULL, QUICK, Plan, selects, soaking
from lab.bench.results import summarize
from lab.bench.server import serving
from lab.bench.stage import Experiment, Stage


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, print the report, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(words)
    _check(parser, options)
    plan = _plan(options)
    chosen = soak_experiments(plan) if options.soak is not None else experiments(plan)
    patterns: list[str] = options.only or []
    cases = [case for experiment in chosen for case in experiment.cases]
    selected = [case for case in cases if selects(patterns, case)]
    if options.list or not selected:
        print(
            "\n".join(selected) if selected else f"no case matches {' or '.join(patterns)}; --list shows all"
        )
        return 0 if selected else 2
    return _measure(options, plan, chosen, patterns, printed_command(words))


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse at once what would fail after an hour and a half."""
    for name in ("json", "report_markdown"):
        file: Path | None = getattr(options, name)
        if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
            parser.error(f"{file} can't be written")
    _contestants(options.contestants)
    if options.dsn is not None and not options.list:
        try:
            psycopg.connect(options.dsn).close()
        except psycopg.Error as error:
            parser.error(f"no connection to the server of --dsn: {str(error).strip()}")


def _measure(
    options: argparse.Namespace,
    plan: Plan,
    experiments: Sequence[Experiment],
    patterns: Sequence[str],
    command: str,
) -> int:
    contestants = _contestants(options.contestants)
    names = list(dict.fromkeys(contestant.database for contestant in contestants))
    with ExitStack() as stack:
        dsn = stack.enter_context(serving(options.dsn))
        databases: dict[str, database.Database] = {}
        for name in names:
            stack.callback(database.drop, dsn, name)
            databases[name] = database.create(dsn, name)
        around = environment.look(databases)
        stage = Stage(plan, contestants, databases, Generator(find_pgbench(), os.cpu_count() or 1))
        status = 0
        try:
            stage.play(experiments, patterns)
        except KeyboardInterrupt:
            stage.note("stopped; this is what was measured so far")
            status = 130
        finally:
            summaries = summarize(stage.measurements)
            print(report.text(around, plan, summaries))
            if options.json:
                options.json.write_text(report.as_json(around, plan, stage.measurements, summaries))
            if options.report_markdown:
                options.report_markdown.write_text(report.markdown(around, plan, summaries, command))
    return status


def _plan(options: argparse.Namespace) -> Plan:
    plan = QUICK if options.quick else FULL
    if options.soak is not None:
        plan = soaking(plan, options.soak)
    changes = {name: value for name in ("rounds", "seconds") if (value := getattr(options, name)) is not None}
    return replace(plan, **changes)


def _contestants(names: str | None) -> tuple[Contestant, ...]:
    if names is None:
        if importlib.util.find_spec("spanmq") is None:
            print("spanmq is not installed: measuring upstream alone", file=sys.stderr)
            return CONTESTANTS[:1]
        return CONTESTANTS
    chosen = names.split(",")
    unknown = set(chosen) - {contestant.name for contestant in CONTESTANTS}
    if unknown:
        known = ",".join(contestant.name for contestant in CONTESTANTS)
        print(f"unknown contestants: {', '.join(sorted(unknown))!r}, of {known}", file=sys.stderr)
        raise SystemExit(2)
    return tuple(contestant for contestant in CONTESTANTS if contestant.name in chosen)


def printed_command(arguments: Sequence[str]) -> str:
    """Return the command to repeat elsewhere: without what names this machine, and may hold a password."""
    own = ("--dsn", "--json", "--report-markdown")
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and not argument.startswith(tuple(f"{option}=" for option in own)):
            kept += [] if argument in own else [argument]
        skip = not skip and argument in own
    return shlex.join(["python", "-m", "lab.bench", *kept])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lab.bench", description="Compare spanmq with upstream PGMQ."
    )
    parser.add_argument(
        "--quick", action="store_true", help="the cases that matter most, under three minutes"
    )
    parser.add_argument("--soak", nargs="?", type=_minutes, const=10.0, metavar="MINUTES", help="only soak")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="cases that match or hold it")
    parser.add_argument("--list", action="store_true", help="show the names of the cases, and run none")
    parser.add_argument("--contestants", metavar="NAMES", help="of upstream,calls,native (default: all)")
    parser.add_argument("--rounds", type=_at_least_one, help="how often each runs a case")
    parser.add_argument("--seconds", type=_at_least_one, help="how long a run of a cycle takes")
    parser.add_argument("--dsn", help="measure on this server; makes and drops spanmq_bench_* databases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured as JSON")
    parser.add_argument("--report-markdown", type=Path, metavar="FILE", help="write the report as Markdown")
    return parser


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _minutes(text: str) -> float:
    minutes = float(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} are no minutes")
    return minutes


def _run() -> int:
    """Be a program: what reads the output may go away, and Ctrl-C may come at any time."""
    try:
        status = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is not tried again at the end
        return 1
    return status


if __name__ == "__main__":
    raise SystemExit(_run())
