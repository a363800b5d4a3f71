"""Queues as things: create, drop, purge, list, count."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName, Yes, confirm
from spanmq.cli.output import Output, fields
from spanmq.cli.progress import awaited
from spanmq.errors import NotSupportedByUpstreamError

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.message import Queue, QueueMetrics

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
        bool, typer.Option("--unlogged", help="Faster; a crash of the server loses its messages.")
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
        output.queues(_with_states(opened, opened.list_queues(), "name"))


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
        output.queues(_with_states(opened, counted, "queue"), columns=METRICS_COLUMNS)


@commands.command()
def storage(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Measure what a queue takes on disk, in bytes; state and WAL are those of all queues."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records([opened.storage(queue)])


def _with_states(opened: Client, records: Sequence[Queue | QueueMetrics], key: str) -> list[dict[str, Any]]:
    """Add what PGMQ's functions do not return: whether a queue is paused, and its open circuit breakers."""
    states: dict[str, dict[str, Any]] = {}
    with suppress(NotSupportedByUpstreamError):
        for glance in opened.glance([getattr(each, key) for each in records], most=1):
            state = {"is_paused": glance.is_paused, "breaker_open_until": glance.breaker_open_until}
            states[glance.queue] = state
    return [fields(each) | states.get(getattr(each, key), {}) for each in records]
