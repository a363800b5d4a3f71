"""The load simulator."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanmq.cli.parts import (
    FAILED,
    INTERRUPTED,
    AsJson,
    Commands,
    Output,
    Stop,
    prepared_address,
    print_table,
    say,
)
from spanmq_lab.simulate.options import CLASSIC_DSN, Options

if TYPE_CHECKING:
    from spanmq_lab.simulate.report import Report
    from spanmq_lab.simulate.run import Echo

commands = Commands()

CONNECT_SECONDS: Final = 3
COMPARED_SECONDS: Final = 60.0


@commands.command()
def simulate(
    options: Options,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--dsn",
            "-dsn",
            metavar="DSN",
            help="The database. Where the default can't be reached: SPANMQ_DSN, else the embedded server.",
            show_default="postgres://test:test@localhost/test",
        ),
    ] = None,
    logfile: Annotated[
        str,
        typer.Option(
            "--logfile",
            "-logfile",
            metavar="FILE",
            help="The log, from which the audit is made; - is stdout.",
        ),
    ] = "msg_queue.log",
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Run the same load on all three engines, twice, each for at most --duration (60), and compare.",
        ),
    ] = False,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Run nothing: audit the log of an earlier run.", show_default="none"
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw rate, backlog, latency and kills over time: .png or .svg.",
            show_default="none",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a queue under load, kill its workers if you like, and audit that nothing was lost or out of order.

    Exit code 1 if the audit fails: a message was lost, handled twice without cause or out of order.

    $ spanmq simulate --fill-db 3000 --workers 12 --kill-every 2
    """
    from spanmq_lab.simulate import plot as drawing
    from spanmq_lab.simulate.run import read_log

    if plot is not None:
        drawing.check_file(plot)
    if audit is not None:
        finish([read_log(audit)], as_json=as_json, plot=plot)
        return
    if compare and options.duration is None:
        options = replace(options, duration=COMPARED_SECONDS)
    with database(dsn) as address, log_at(logfile) as (log, echo), Stop() as stop:
        reports = run_all(address, options, compare=compare, log=log, echo=echo, stop=stop)
    finish(reports, as_json=as_json, plot=plot)
    if stop.is_set():
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


def run_all(
    dsn: str, options: Options, *, compare: bool, log: Path, echo: "Echo | None", stop: Stop
) -> "list[Report]":
    """Run one engine, or all of them twice."""
    from spanmq_lab.simulate.compare import rounds
    from spanmq_lab.simulate.display import Display
    from spanmq_lab.simulate.engine_polling import with_files_found
    from spanmq_lab.simulate.run import run

    reports: list[Report] = []
    for round_options in rounds(options) if compare else [options]:
        if stop.is_set():
            break
        complete = with_files_found(round_options)
        reports.append(run(dsn, complete, log=log, display=Display(complete), stop=stop.is_set, echo=echo))
    return reports


def finish(reports: "list[Report]", *, as_json: bool, plot: Path | None) -> None:
    """Print and draw the outcome; end with an exit code."""
    from spanmq_lab.simulate import plot as drawing
    from spanmq_lab.simulate.compare import comparison

    output = Output(as_json=as_json)
    if plot is not None:
        drawing.draw(reports, plot)
        say(f"drawn: {plot}")
    if as_json:
        for report in reports:
            output.done("", **report.record())
    elif len(reports) == 1:
        print_table(["simulation", "result"], reports[0].lines())
    else:
        print_table(*comparison(reports))
    # In a comparison the faults of the polling engines are what is to be seen.
    judged = reports if len(reports) == 1 else [report for report in reports if report.engine == "spanmq"]
    if not all(report.passed for report in judged):
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def database(dsn: str | None) -> Iterator[str]:
    """Yield the named database, or the classic one, SPANMQ_DSN's or the embedded server's."""
    if dsn is not None:
        yield dsn
    elif is_reachable(CLASSIC_DSN):
        say(f"spanmq: using {CLASSIC_DSN} (--dsn names another)")
        yield CLASSIC_DSN
    elif named := os.environ.get("SPANMQ_DSN"):
        yield named
    else:
        with prepared_address() as address:
            yield address


def is_reachable(dsn: str) -> bool:
    """Return whether a database answers."""
    import psycopg

    try:
        psycopg.connect(dsn, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError:
        return False
    return True


@contextlib.contextmanager
def log_at(logfile: str) -> "Iterator[tuple[Path, Echo | None]]":
    """Yield the log file; for stdout a temporary one, and a function that copies its lines."""
    if logfile != "-":
        yield Path(logfile), None
        return
    with tempfile.TemporaryDirectory(prefix="spanmq-simulate-") as folder:
        yield Path(folder, "msg_queue.log"), write_out


def write_out(line: bytes) -> None:
    """Write a line of the log to stdout."""
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
