"""What stands in queues, at a price that does not grow with them."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output

commands = typer.Typer()

Quantity = Annotated[int, typer.Option("--quantity", "-n", help="How many at most.")]
Queues = Annotated[
    list[str] | None, typer.Argument(metavar="[QUEUE]...", help="Of these only.", show_default=False)
]


@commands.command()
def glance(
    queues: Queues = None,
    most: Annotated[int, typer.Option(help="Count queues of at most so many runs.")] = 200,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Count what waits in each queue, if that is little."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.queues(opened.glance(queues or None, most=most))


@commands.command()
def list_leases(queue: QueueName, quantity: Quantity = 100, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List what receivers hold, the oldest lease first."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_leases(queue, quantity), empty="nobody holds anything")


@commands.command()
def list_groups(queue: QueueName, quantity: Quantity = 100, dsn: Dsn = None, as_json: AsJson = False) -> None:
    """List groups, those first that give nothing now, and what they wait for."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_groups(queue, quantity), empty="no groups")


@commands.command()
def list_segments(
    queue: QueueName, quantity: Quantity = 100, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """List the tables of a queue's log, the newest first."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_segments(queue, quantity), empty="no segments")


@commands.command()
def sum_statistics(
    queues: Queues = None,
    seconds: Annotated[float, typer.Option(help="How far to look back; three days are kept.")] = 3600.0,
    step: Annotated[float, typer.Option(help="Seconds that a row covers.")] = 60.0,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Tell what queues did together, step by step, up to a minute ago."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.sum_statistics(queues or None, seconds=seconds, step=step))
