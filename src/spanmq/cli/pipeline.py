"""The pipeline: jobs over Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.connect import address
from spanmq.cli.failure import say
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output, fields
from spanmq.cli.progress import awaited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

commands = typer.Typer(
    help="Jobs over Spark: in this process, or on a cluster (--master).", no_args_is_help=True
)

Master = Annotated[
    str | None,
    typer.Option(help="Spark's master, such as local[4]. Without it local[*].", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]


@commands.command("export")
def export(
    queue: QueueName,
    to: Annotated[str, typer.Option(help="The lake's folder; made where it isn't.", show_default=False)],
    dry_run: DryRun = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Write what a queue's archive has, and the lake hasn't, into Parquet files, verified.

    Each message once, whatever is killed when; run it again and again. From the first export on the archive's
    retention deletes only what the lake has.
    """
    output = Output(as_json=as_json)
    with _running(master, f"exporting {queue}") as spark, address(dsn) as found:
        from spanmq.spark.jobs.export import export as run

        report = run(spark, found, queue, to, dry_run=dry_run)
    verb = "would export" if dry_run else "exported"
    output.done(
        f"{verb} {report.exported:,} messages of queue {report.queue} to {report.to}, {report.seconds:.1f} s",
        **fields(report),
    )


@commands.command("report")
def report(
    queue: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", help="A queue, or several by a pattern.", show_default=False),
    ] = None,
    lake: Annotated[
        str | None, typer.Option(help="A folder that exports wrote into.", show_default=False)
    ] = None,
    page: Annotated[
        str | None, typer.Option(help="Write an HTML page with charts into this file.", show_default=False)
    ] = None,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Count what was archived: how much, how long it waited, how often it was tried, by queue and window."""
    output = Output(as_json=as_json)
    if (queue is None) == (lake is None):
        raise typer.BadParameter("give a QUEUE or a --lake")
    with _running(master, "counting") as spark:
        from spanmq.spark.jobs.report import report as run

        if lake is not None:
            found = run(spark, lake=lake, page=page)
        else:
            with address(dsn) as database:
                found = run(spark, dsn=database, queue=queue, page=page)
    if as_json:
        output.done("", **fields(found))
    else:
        output.records(found.queues)
    if page is not None:
        say(f"spanmq: wrote {page}")


@commands.command("backfill")
def backfill(
    queue: QueueName,
    source: Annotated[str, typer.Argument(metavar="PATH", help="What Spark is to read.", show_default=False)],
    job_id: Annotated[
        str, typer.Option(help="A second backfill of this name sends nothing.", show_default=False)
    ],
    source_format: Annotated[str, typer.Option("--format", help="As Spark names it.")] = "parquet",
    body: Annotated[
        str | None,
        typer.Option(help="An SQL expression; all columns as JSON without it.", show_default=False),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="An SQL expression of the group.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send every row of a table or of files as a message: all at one instant, and once."""
    output = Output(as_json=as_json)
    with _running(master, f"filling {queue}") as spark, address(dsn) as found:
        from spanmq.spark.jobs.backfill import backfill as run

        report = run(
            spark,
            found,
            queue,
            source,
            job_id=job_id,
            format=source_format,
            body=body,
            group=group,
            dry_run=dry_run,
        )
    if dry_run:
        sentence = f"would send {report.found:,} messages to queue {report.queue}"
    else:
        sentence = f"sent {report.sent:,} messages to queue {report.queue} in {report.seconds:.1f} s"
    output.done(sentence, **fields(report))


@contextmanager
def _running(master: str | None, what: str) -> Iterator["SparkSession"]:
    """Give a session for a job; what Spark raises comes out as one message."""
    from spanmq.spark.cause import clear_errors
    from spanmq.spark.session import is_running, session

    with awaited(what), clear_errors():
        was_running = is_running()
        spark = session(master, name=f"spanmq {what}")
        try:
            yield spark
        finally:
            if not was_running:
                spark.stop()
