"""The demo."""

import contextlib
from typing import Annotated

import typer

from spanmq.cli.connect import prepared_address
from spanmq.cli.failure import FAILED
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output, fields
from spanmq.cli.table import print_table

commands = typer.Typer()


@commands.command()
def demo(
    rows: Annotated[int, typer.Option(min=1, help="How many flights.")] = 336_776,
    consumers: Annotated[int, typer.Option(min=1, max=32, help="How many receive at once.")] = 3,
    queue: Annotated[str, typer.Option(help="The queue, which must not exist.")] = "spanmq_demo_flights",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the queue with its archive, to look at it.")
    ] = False,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Send the 336,776 flights that left New York in 2013 through a queue, and check that each came out.

    Without a database it runs on a PostgreSQL of its own, which is gone afterwards; with --keep, on the
    embedded server. Exit code 1 if a check fails.
    """
    from spanmq import demo as demonstration

    output = Output(as_json=as_json)
    with contextlib.ExitStack() as stack:
        if keep and dsn is None:
            # A server that is gone afterwards keeps nothing.
            dsn = stack.enter_context(prepared_address())
        report = demonstration.run(dsn, rows=rows, consumers=consumers, queue=queue, keep=keep)
    if as_json:
        output.done("", **fields(report))
    else:
        print_table(["demo", "result"], report.lines())
    if not report.passed:
        raise typer.Exit(FAILED)
