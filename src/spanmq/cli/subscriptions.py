"""Subscriptions: queues that get every message of another queue."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output

commands = typer.Typer()


@commands.command()
def create_subscription(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the subscription.", show_default=False)
    ],
    queue: QueueName,
    waiting: Annotated[bool, typer.Option(help="Begin with what is unsettled in the queue now.")] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Create a queue that gets every message of another queue, without a second copy.

    drop-queue drops it.
    """
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.create_subscription(name, queue, waiting=waiting)
    output.done(f"queue {name} gets every message of queue {queue}", subscription=name, queue=queue)


@commands.command()
def list_subscriptions(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Of this queue only.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the queues that get every message of another queue."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_subscriptions(queue), empty="no subscriptions")
