"""The load simulator."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanmq.cli.failure import FAILED, INTERRUPTED, say
from spanmq.cli.interrupt import Stop
from spanmq.cli.option import AsJson
from spanmq.cli.output import Output
from spanmq.cli.table import print_table
from spanmq.cli.verbs import Commands

if TYPE_CHECKING:
    from spanmq.simulate import Options, Report
    from spanmq.simulate.run import Echo

commands = Commands()

CONNECT_SECONDS: Final = 3
DEFAULT_COUNT: Final = 1_000
COMPARED_SECONDS: Final = 60.0


@commands.command()
def simulate(
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
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            "-schema",
            metavar="FILE",
            help="Makes the table of the polling engines.",
            show_default="schema.sql here, else our own",
        ),
    ] = None,
    fill_db: Annotated[
        int | None,
        typer.Option(
            "--fill-db",
            "-fill-db",
            metavar="N",
            help="How many messages; it ends when they are handled.",
            show_default="1000, or all rows of --from",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            "-rate",
            metavar="R",
            help="Send while they are handled, at most this many a second.",
            show_default="none: all are written before",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", "-workers", metavar="W", help="Worker processes, shared among the types."),
    ] = 5,
    delmsg: Annotated[
        bool,
        typer.Option(
            "--delmsg", "-delmsg", help="Delete what is handled, instead of marking (spanmq: archiving) it."
        ),
    ] = False,
    logfile: Annotated[
        str,
        typer.Option(
            "--logfile",
            "-logfile",
            metavar="FILE",
            help="The log, from which the audit is made; - is stdout.",
        ),
    ] = "msg_queue.log",
    engine: Annotated[
        str, typer.Option(help="spanmq (ordered groups), polling (the classic statement) or polling-indexed.")
    ] = "spanmq",
    next_msg: Annotated[
        Path | None,
        typer.Option(
            "--next-msg",
            metavar="FILE",
            help="The statement with which the polling engines claim.",
            show_default="next_msg.sql here, else our own",
        ),
    ] = None,
    types: Annotated[int, typer.Option(help="Types of queue: type1, type2, …")] = 3,
    keys: Annotated[int, typer.Option(help="Different order_ids in each type.")] = 2,
    skew: Annotated[float, typer.Option(help="Zipf's exponent over the keys; 0: all are alike.")] = 0.0,
    work: Annotated[
        str,
        typer.Option(help="Milliseconds to handle one: uniform:1:10, fixed:5, exponential:5, lognormal:5:1."),
    ] = "uniform:1:10",
    batch: Annotated[int, typer.Option(help="How many messages a worker receives at once (spanmq).")] = 32,
    send_batch: Annotated[
        int | None,
        typer.Option(
            help="How many messages a producer sends at once.",
            show_default="1 at a rate, 100000 with --producer spark, else 1000",
        ),
    ] = None,
    producers: Annotated[int, typer.Option(help="Producer processes.")] = 1,
    transaction: Annotated[
        float, typer.Option(metavar="SECONDS", help="Keep transactions of producers open for this time.")
    ] = 0.0,
    same_time: Annotated[
        bool,
        typer.Option(
            "--same-time", help="Give all rows of a send the same time_added, as now() does (polling)."
        ),
    ] = False,
    failure_rate: Annotated[float, typer.Option(help="This share of all attempts fails.")] = 0.0,
    failure_category: Annotated[
        str, typer.Option(help="Their category: TRANSIENT, DEPENDENCY, PERMANENT, BUSINESS or UNKNOWN.")
    ] = "TRANSIENT",
    poison: Annotated[
        float, typer.Option(help="This share of the messages fails whenever it is handled.")
    ] = 0.0,
    poison_kills: Annotated[
        bool, typer.Option("--poison-kills", help="Poison kills its worker instead of failing.")
    ] = False,
    max_attempts: Annotated[
        int, typer.Option(help="Attempts after which a message is a dead letter (spanmq).")
    ] = 5,
    backoff: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Before the second attempt, doubled for each further (spanmq)."),
    ] = 0.1,
    lease: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Seconds of a lease (spanmq)."),
    ] = 5.0,
    kill_every: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Kill a random worker with SIGKILL about so often, and start another.",
            show_default="never",
        ),
    ] = None,
    hold_snapshot: Annotated[
        bool,
        typer.Option(
            "--hold-snapshot", help="Keep a transaction open beside it, so that nothing is vacuumed."
        ),
    ] = False,
    duration: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Seconds until the run ends. With --rate and without --fill-db nothing else ends it.",
            show_default="none, 60 with --compare",
        ),
    ] = None,
    idle_sleep: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long an idle worker sleeps (polling).")
    ] = 1.0,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="Stop when no message was handled for this time.")
    ] = 30.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same load.")] = 1,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="flights|FILE.jsonl",
            help="Send real data: the flights of the demo, or a file with an object a line.",
            show_default="generated messages",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="The field of that file whose values keep their order.",
            show_default="none: a file needs it",
        ),
    ] = None,
    producer: Annotated[
        str,
        typer.Option(
            metavar="client|spark",
            help="What sends: processes with a client, or, before the workers begin, Spark's sink.",
        ),
    ] = "client",
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
    keep: Annotated[bool, typer.Option("--keep", help="Keep the queues, or the table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a queue under load, kill its workers if you like, and audit that nothing was lost or out of order.

    Exit code 1 if the audit fails: a message was lost, handled twice without cause or out of order.

    $ spanmq simulate --fill-db 3000 --workers 12 --kill-every 2
    """
    from spanmq.simulate import Options, read_log
    from spanmq.simulate import plot as drawing

    if plot is not None:
        drawing.check_file(plot)
    if audit is not None:
        finish([read_log(audit)], as_json=as_json, plot=plot)
        return
    if fill_db is None and source is None and (duration is None or rate is None):
        fill_db = DEFAULT_COUNT
    options = Options(
        engine=engine,
        fill_db=fill_db,
        rate=rate,
        workers=workers,
        delmsg=delmsg,
        types=types,
        keys=keys,
        skew=skew,
        work=work,
        batch=batch,
        send_batch=send_batch,
        producer=producer,
        producers=producers,
        transaction=transaction,
        same_time=same_time,
        failure_rate=failure_rate,
        failure_category=failure_category,
        poison=poison,
        poison_kills=poison_kills,
        max_attempts=max_attempts,
        backoff=backoff,
        lease=lease,
        kill_every=kill_every,
        hold_snapshot=hold_snapshot,
        duration=COMPARED_SECONDS if compare and duration is None else duration,
        idle_sleep=idle_sleep,
        patience=patience,
        seed=seed,
        source=source,
        key=key,
        schema_file=schema,
        next_msg_file=next_msg,
        keep=keep,
    )
    with database(dsn) as address, log_at(logfile) as (log, echo), Stop() as stop:
        reports = run_all(address, options, compare=compare, log=log, echo=echo, stop=stop)
    finish(reports, as_json=as_json, plot=plot)
    if stop.is_set():
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)


def run_all(
    dsn: str, options: Options, *, compare: bool, log: Path, echo: Echo | None, stop: Stop
) -> list[Report]:
    """Run one engine, or all of them twice."""
    from spanmq.simulate import run
    from spanmq.simulate.compare import rounds
    from spanmq.simulate.display import display_of
    from spanmq.simulate.engine_polling import with_files_found

    reports: list[Report] = []
    for each in rounds(options) if compare else [options]:
        if stop.is_set():
            break
        complete = with_files_found(each)
        reports.append(run(dsn, complete, log=log, display=display_of(complete), stop=stop.is_set, echo=echo))
    return reports


def finish(reports: list[Report], *, as_json: bool, plot: Path | None) -> None:
    """Print and draw the outcome; end with an exit code."""
    from spanmq.simulate import plot as drawing
    from spanmq.simulate.compare import comparison

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
    judged = reports if len(reports) == 1 else [each for each in reports if each.engine == "spanmq"]
    if not all(report.passed for report in judged):
        raise typer.Exit(FAILED)


@contextlib.contextmanager
def database(dsn: str | None) -> Iterator[str]:
    """Yield the named database, or the classic one, SPANMQ_DSN's or the embedded server's."""
    from spanmq.cli.connect import prepared_address
    from spanmq.simulate import CLASSIC_DSN

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
def log_at(logfile: str) -> Iterator[tuple[Path, Echo | None]]:
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
