"""Queues as things: create, drop, purge, list, count."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName, Yes, confirm
from spanmq.cli.output import Output
from spanmq.cli.progress import awaited

commands = typer.Typer()

METRICS_COLUMNS = (
    "queue",
    "length",
    "visible_length",
    "total_messages",
    "oldest_age_seconds",
    "newest_age_seconds",
)


@commands.command()
def create_queue(
    name: QueueName,
    unlogged: Annotated[
        bool, typer.Option("--unlogged", help="Faster, and empty after a crash of the server.")
    ] = False,
    partition_interval: Annotated[
        str | None,
        typer.Option(help="PGMQ's partitioned kind: messages, or a time, a segment.", show_default=False),
    ] = None,
    retention_interval: Annotated[
        str | None,
        typer.Option(help="How many messages, or how long, the archive keeps.", show_default=False),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue; does nothing if it exists."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.create_queue(
            name,
            unlogged=unlogged,
            partition_interval=partition_interval,
            retention_interval=retention_interval,
        )
    output.done(f"queue {name} is there", queue=name)


@commands.command()
def drop_queue(queue: QueueName, yes: Yes = False, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Drop a queue with its messages and its archive."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        confirm(f"Drop queue {queue} with all its messages and its archive?", yes=yes)
        with awaited("dropping"):
            was_there = opened.drop_queue(queue)
    output.done(
        f"dropped queue {queue}" if was_there else f"there was no queue {queue}",
        queue=queue,
        dropped=was_there,
    )


@commands.command()
def purge(queue: QueueName, yes: Yes = False, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Remove all messages of a queue, also those in work; the archive stays."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        count = opened.metrics(queue).length
        confirm(f"Remove all messages of queue {queue}, now {count:,}?", yes=yes)
        with awaited("purging"):
            purged = opened.purge(queue)
    output.done(f"removed {purged:,} messages from {queue}", queue=queue, purged=purged)


@commands.command()
def list_queues(dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List the queues."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_queues(), empty="no queues")


@commands.command()
def metrics(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue, or all.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Count the messages of one queue or of all."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        counted = opened.metrics_all() if queue is None else [opened.metrics(queue)]
    output.records(counted, columns=METRICS_COLUMNS, empty="no queues")


@commands.command()
def storage(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Measure what a queue takes on disk, in bytes; spans and WAL are those of all queues."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records([opened.storage(queue)])
