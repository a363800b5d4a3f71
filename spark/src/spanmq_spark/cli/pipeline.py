"""The noun `pipeline`: jobs over Spark, in this process or on a cluster (--master)."""

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.parts import (
    AsJson,
    Commands,
    DryRun,
    Dsn,
    Output,
    QueueName,
    Stop,
    Yes,
    address,
    awaited,
    confirm,
    fields,
    time_option,
)
from spanmq.codec import KEYS_VARIABLE
from spanmq.errors import EncryptionError
from spanmq_spark.cli.job import Master, running

if TYPE_CHECKING:
    from spanmq_spark.jobs.export import ExportReport
    from spanmq_spark.jobs.migrate import Send, SparkFormat

pipeline = Commands()

# The columns of the table of causes.
CAUSE_COLUMNS = (
    *("cause", "queue", "dead_letters", "categories", "proposal", "reason", "put_back", "died_again"),
    *("groups", "error_class", "pattern", "last_dead_at"),
)


@pipeline.command("export")
def export(
    queue: QueueName,
    to: Annotated[
        str, typer.Option(help="The lake: a folder, created if it does not exist, or a URI (s3://…).")
    ],
    table: Annotated[str, typer.Option(help="archive or dead_letters.")] = "archive",
    lake_format: Annotated[
        str, typer.Option("--format", help="parquet, delta, iceberg or ducklake.")
    ] = "parquet",
    follow: Annotated[bool, typer.Option("--follow", help="Continue until it is stopped.")] = False,
    every: Annotated[float, typer.Option(help="With --follow: seconds between two exports.")] = 60.0,
    dry_run: DryRun = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Export archived messages (or dead letters) that a lake does not have into it, verified.

    Each row is exported once, also after a kill; repeat it regularly. After the first export, retention
    deletes only exported rows.

    $ spanmq pipeline export orders --to lake
    """
    if follow and dry_run:
        raise typer.BadParameter("--follow and --dry-run can't be used together")
    output = Output(as_json=as_json)

    def say_done(report: "ExportReport") -> None:
        verb = "would export" if dry_run else "exported"
        output.done(
            f"{verb} {report.exported:,} rows of the {report.table.replace('_', ' ')} of queue "
            f"{report.queue} to {report.to}, {report.seconds:.1f} s",
            **fields(report),
        )

    with running(master, f"exporting {queue}") as job, address(dsn) as database:
        from spanmq_spark.jobs import export as jobs

        if not follow:
            say_done(
                jobs.export(
                    lambda: job.spark, database, queue, to, table=table, format=lake_format, dry_run=dry_run
                )
            )
            return
        with Stop() as stop:
            jobs.follow(
                lambda: job.spark,
                database,
                queue,
                to,
                table=table,
                format=lake_format,
                every=every,
                wait=stop.wait,
                progress=say_done,
            )


@pipeline.command("orphans")
def orphans(
    queue: QueueName,
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="Its folder or URI.")],
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files.")] = False,
    yes: Yes = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the files of exports that the catalogue of a DuckLake does not know, or delete them.

    Killed exports leave them, and so does a database that was restored to an earlier time. A copy of the database may
    still need them.

    $ spanmq pipeline orphans orders /data/lake
    """
    from spanmq_spark.session import require

    require()
    from spanmq_spark.jobs.repairs import orphans as run

    if delete:
        confirm(f"Delete the files in {lake} that the catalogue does not know?", yes=yes)
    with address(dsn) as database, awaited(f"listing files of {queue}"):
        report = run(database, queue, lake, delete=delete)
    output = Output(as_json=as_json)
    verb = "deleted" if delete else "found"
    sentence = f"{verb} {len(report.names):,} files of queue {queue} that the catalogue does not know"
    output.done("\n".join([sentence, *report.names]), **fields(report))


@pipeline.command("moved")
def moved(
    queue: QueueName,
    lake: Annotated[str | None, typer.Option(help="The lake that exports wrote into.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The checkpoint of a stream over the queue.")] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Connect a lake or a checkpoint to a database that was moved, restored or renamed.

    The database must have the content of the old one. Stop the stream first.

    $ spanmq pipeline moved orders --lake /data/lake --checkpoint /data/checkpoint
    """
    from spanmq_spark.session import require

    if lake is None and checkpoint is None:
        raise typer.BadParameter("pass --lake, --checkpoint or both")
    require()
    from spanmq_spark.jobs.repairs import moved as run

    with address(dsn) as database:
        report = run(database, queue, lake=lake, checkpoint=checkpoint)
    Output(as_json=as_json).done(
        f"{len(report.tables)} tables of the lake and {report.offsets:,} offsets of the checkpoint now name "
        "this database",
        **fields(report),
    )


@pipeline.command("restored")
def restored(
    queue: QueueName,
    lake: Annotated[str | None, typer.Option(help="The lake that exports wrote into.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="The checkpoint of a stream of the queue.")] = None,
    into_table: Annotated[
        bool,
        typer.Option("--into-table", help="QUEUE is a table of PostgreSQL, into which the stream writes."),
    ] = False,
    dry_run: DryRun = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Continue a lake or a checkpoint after it, or the database, was restored to an earlier time.

    Rows that only the lake has are moved to the folder `lost` in it. Stop the stream first.

    $ spanmq pipeline restored orders --lake /data/lake --dry-run
    """
    from spanmq_spark.session import require

    if lake is None and checkpoint is None:
        raise typer.BadParameter("pass --lake, --checkpoint or both")
    if into_table and (checkpoint is None or lake is not None):
        raise typer.BadParameter("--into-table requires --checkpoint")
    require()
    from spanmq_spark.jobs.repairs import restored as run
    from spanmq_spark.jobs.repairs import restored_table

    with address(dsn) as database, awaited(f"comparing {queue}"):
        if into_table and checkpoint is not None:
            report = restored_table(database, queue, checkpoint, dry_run=dry_run)
        else:
            report = run(database, queue, lake=lake, checkpoint=checkpoint, dry_run=dry_run)
    if report.tables and not as_json:
        Output(as_json=False).records(report.tables)
    sentence = (
        f"{len(report.tables)} tables of the lake differ, {report.batches:,} batches are read again, and"
        f" {len(report.epochs):,} epochs are written again"
    )
    Output(as_json=as_json).done(sentence, **fields(report))


@pipeline.command("backfill")
def backfill(
    queue: QueueName,
    job_id: Annotated[str, typer.Option(help="A second backfill of this name sends nothing.")],
    source: Annotated[
        str | None, typer.Argument(metavar="PATH", help="File or folder that Spark reads.")
    ] = None,
    source_format: Annotated[str, typer.Option("--format", help="As Spark names it.")] = "parquet",
    body: Annotated[
        str | None, typer.Option(help="An SQL expression; all columns as JSON without it.")
    ] = None,
    headers: Annotated[str | None, typer.Option(help="An SQL expression of a JSON object.")] = None,
    group: Annotated[str | None, typer.Option(help="An SQL expression of the group.")] = None,
    order: Annotated[
        str | None, typer.Option(help="An SQL expression by which a group is put in order.")
    ] = None,
    from_lake: Annotated[str | None, typer.Option(help="Send messages of this lake again.")] = None,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="Send archived messages again.")
    ] = False,
    of: Annotated[str | None, typer.Option(help="Archived messages: of this queue; default: QUEUE.")] = None,
    since: Annotated[Any, time_option("Archived messages: only those sent then or later.")] = None,
    until: Annotated[Any, time_option("Archived messages: only those sent before.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Archived messages: only those that meet this SQL condition.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Write at most this many a second.")] = None,
    key_file: Annotated[
        str | None,
        typer.Option(envvar="SPANMQ_ENCRYPTION_KEY_FILE", help="Seal bodies with this file's keys."),
    ] = None,
    dry_run: DryRun = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send every row of a table or of files as a message, or archived messages again: all at one instant, and once.

    $ spanmq pipeline backfill orders old.parquet --job-id load-2026-01 --group customer

    $ spanmq pipeline backfill fix --from-lake lake --of orders --since 2026-01-01 --job-id fix-2026
    """
    output = Output(as_json=as_json)
    is_replay = from_lake is not None or from_archive
    if (source is not None) + (from_lake is not None) + from_archive != 1:
        raise typer.BadParameter("pass PATH, --from-lake or --from-archive")
    named = {"body": body, "headers": headers, "group": group, "order": order}
    chosen = {"of": of, "since": since, "until": until, "where": where}
    for name, value in (named if is_replay else chosen).items():
        if value is not None:
            belongs = "a PATH" if is_replay else "--from-lake and --from-archive"
            raise typer.BadParameter(f"--{name} is for {belongs}")
    # Every other command seals with these; sent as they are, bodies would be there for all to read.
    if key_file is None and os.environ.get(KEYS_VARIABLE) and not is_replay:
        raise EncryptionError(f"Spark reads keys from a file: pass --key-file, or unset {KEYS_VARIABLE}")
    with running(master, f"filling {queue}") as job, address(dsn) as database:
        from spanmq_spark.jobs.archived import Archived
        from spanmq_spark.jobs.backfill import backfill as run

        report = run(
            job.spark,
            database,
            queue,
            source or Archived(of or queue, from_lake, since, until, where),
            job_id=job_id,
            format=source_format,
            body=body,
            headers=headers,
            group=group,
            order=order,
            rate=rate,
            # Archived bodies are as they were sent, sealed or not.
            encryption_key_file=None if is_replay else key_file,
            dry_run=dry_run,
        )
    if dry_run:
        sentence = f"would send {report.found:,} messages to queue {report.queue}"
        if report.oldest_at is not None:
            sentence += f", of those since {report.oldest_at.isoformat()}"
    else:
        sentence = f"sent {report.sent:,} messages to queue {report.queue} in {report.seconds:.1f} s"
    output.done(sentence, **fields(report))


@pipeline.command("migrate")
def migrate(
    queue: QueueName,
    to: Annotated[
        str, typer.Option(help="A format that Spark can write, or MODULE:FUNCTION, called with each batch.")
    ],
    checkpoint: Annotated[str, typer.Option(help="A folder that stores the progress.")],
    setting: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Option of a format.")
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="A column of a format, as an SQL expression.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Continue until it is stopped.")] = False,
    batch: Annotated[int, typer.Option(help="Messages that a kill may send twice.")] = 50_000,
    dry_run: DryRun = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send the messages of a queue to another system, at least once, and remove them when it has them.

    If it is killed, it continues with the same --checkpoint; messages that are sent twice have the same id.
    Functions for RabbitMQ, Kafka and SQS are in examples/migrate.

    $ spanmq pipeline migrate orders --to to_rabbitmq:send --checkpoint checkpoint
    $ spanmq pipeline migrate orders --to parquet --setting path=/data/orders --checkpoint checkpoint
    """
    output = Output(as_json=as_json)
    from spanmq_spark.session import require

    require()
    from spanmq_spark.jobs.migrate import migrate as run

    target = _target(to, setting or [], select or [])
    with running(master, f"migrating {queue}") as job, address(dsn) as database:
        report = run(
            job.spark,
            database,
            queue,
            target,
            checkpoint,
            follow=follow,
            batch=batch,
            dry_run=dry_run,
            progress=job.told,
        )
    verb = "would send" if dry_run else "sent"
    output.done(
        f"{verb} {report.sent:,} messages of queue {report.queue} to {report.to}, {report.seconds:.1f} s; "
        f"{report.left:,} are left, {report.dead_letters:,} are dead letters",
        **fields(report),
    )


@pipeline.command("dead-letters")
def dead_letters(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue, or several by a pattern.")] = "*",
    redrive: Annotated[bool, typer.Option("--redrive", help="Redrive the selected ones.")] = False,
    discard: Annotated[bool, typer.Option("--discard", help="Delete the selected ones for good.")] = False,
    cause: Annotated[list[str] | None, typer.Option(help="Choose those of this cause.")] = None,
    category: Annotated[str | None, typer.Option(help="Choose those of this category.")] = None,
    all_causes: Annotated[bool, typer.Option("--all", help="Choose all of them.")] = False,
    body: Annotated[str | None, typer.Option(help="Redrive with this body, an SQL expression.")] = None,
    rate: Annotated[float | None, typer.Option(help="The most per second.")] = None,
    delay: Annotated[
        float | None,
        typer.Option(help="Seconds until the first can be received; default: the policy's redrive_delay."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    master: Master = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Group dead letters by cause and propose categories; redrive or discard a selection.

    $ spanmq pipeline dead-letters orders --redrive --category DEPENDENCY --dry-run
    $ spanmq pipeline dead-letters orders --redrive --all --body "replace(body, '.exmaple', '.example')" --dry-run
    """
    output = Output(as_json=as_json)
    if redrive and discard:
        raise typer.BadParameter("--redrive and --discard can't be used together")
    if discard and not dry_run:
        confirm(f"Delete dead letters of {queue} for good?", yes=yes)
    with running(master, f"dead letters of {queue}") as job, address(dsn) as database:
        from spanmq_spark.jobs.dead_letters import dead_letters as run

        report = run(
            job.spark,
            database,
            queue,
            act="redrive" if redrive else "discard" if discard else None,
            causes=cause or (),
            category=category,
            all_causes=all_causes,
            body=body,
            rate=rate,
            delay=delay,
            dry_run=dry_run,
            progress=job.told,
        )
    if as_json:
        output.done("", **fields(report))
    elif report.act is None:
        output.records(report.causes, columns=CAUSE_COLUMNS, empty="no dead letters")
    else:
        if report.changes:
            output.records(report.changes)
        verb = ("would have " if dry_run else "") + ("redriven" if redrive else "deleted")
        output.done(f"{verb} {report.chosen if dry_run else report.done:,} dead letters")


def _target(to: str, settings: list[str], columns: list[str]) -> "SparkFormat | Send":
    from spanmq_spark.jobs.migrate import SparkFormat

    wrong = [setting for setting in settings if "=" not in setting]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not of the form NAME=VALUE", param_hint="--setting")
    if ":" not in to:
        pairs = (setting.partition("=") for setting in settings)
        return SparkFormat(
            name=to, settings={name: value for name, _, value in pairs}, columns=tuple(columns)
        )
    if settings or columns:
        raise typer.BadParameter("--setting and --select are for a format, and --to names a function")
    from spanmq.worker.handler import find

    # As an executor's Python has it.
    sys.path.insert(0, "")
    function: Send = find(to)
    return function
