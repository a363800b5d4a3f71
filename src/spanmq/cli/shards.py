"""Shards: one logical queue over several queues of one database (of several: spanmq.ShardedQueue)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, cast

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName, Yes, confirm
from spanmq.cli.output import Output
from spanmq.shard_map import ROUTINGS, Routing, ShardMap
from spanmq.shards import ShardedQueue

commands = typer.Typer()

Shards = Annotated[
    list[str], typer.Argument(metavar="SHARD…", help="Names of queues; they are created.", show_default=False)
]


@commands.command()
def create_shards(
    queue: QueueName,
    shards: Shards,
    routing: Annotated[str, typer.Option(help=f"How messages are spread: {', '.join(ROUTINGS)}.")] = "group",
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Create a logical queue over several queues; does nothing if it exists."""
    output = Output(as_json=as_json)
    if routing not in ROUTINGS:
        raise typer.BadParameter(f"routing must be one of {', '.join(ROUTINGS)}")
    with _opened(queue, dsn) as sharded:
        output.records([_record(sharded.create(shards, routing=cast("Routing", routing)))])


@commands.command()
def list_shards(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Show the shards of a logical queue, and those that a change is taking messages from."""
    output = Output(as_json=as_json)
    with _opened(queue, dsn) as sharded:
        output.records([_record(sharded.shards())])


@commands.command()
def change_shards(queue: QueueName, shards: Shards, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Use other shards from now on; groups that move do so when their messages are settled."""
    output = Output(as_json=as_json)
    with _opened(queue, dsn) as sharded:
        output.records([_record(sharded.change(shards))])


@commands.command()
def finish_shards(queue: QueueName, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """End a change of shards, if nothing is left that moves."""
    output = Output(as_json=as_json)
    with _opened(queue, dsn) as sharded:
        done = sharded.finish()
    output.done("no change is open" if done else "messages are left that move", queue=queue, finished=done)


@commands.command()
def drop_shards(queue: QueueName, yes: Yes = False, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """Drop a logical queue and its shards with all messages."""
    output = Output(as_json=as_json)
    with _opened(queue, dsn) as sharded:
        confirm(f"Drop {queue} and all its shards with their messages and archives?", yes=yes)
        was_there = sharded.drop()
    done = f"dropped {queue}" if was_there else f"there were no shards of {queue}"
    output.done(done, queue=queue, dropped=was_there)


@contextmanager
def _opened(queue: str, dsn: str | None) -> Iterator[ShardedQueue]:
    with client(dsn) as opened:
        yield ShardedQueue(queue, opened)


def _record(there: ShardMap) -> dict[str, object]:
    return {
        "queue": there.queue,
        "epoch": there.epoch,
        "routing": there.routing,
        "shards": list(there.shards),
        "former": None if there.former is None else list(there.former),
    }
