"""What the pipeline's jobs did."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output

commands = typer.Typer()


@commands.command()
def list_pipeline_runs(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Of this queue only.", show_default=False)
    ] = None,
    before: Annotated[
        int | None, typer.Option(help="Runs before this number only.", show_default=False)
    ] = None,
    quantity: Annotated[int, typer.Option("--quantity", "-n", help="How many runs at most.")] = 100,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of the pipeline's jobs, the newest first.

    A run that was not heard of for two minutes is lost: it was killed, or its machine was.
    """
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(
            opened.list_pipeline_runs(queue, before=before, quantity=quantity), empty="no job has run"
        )
