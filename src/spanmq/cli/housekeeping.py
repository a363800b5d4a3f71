"""Housekeeping, for a server without a client that runs all the time: once, or for ever."""

from typing import Annotated, Final

import typer

from spanmq import errors
from spanmq.cli.connect import client
from spanmq.cli.failure import INTERRUPTED, describe, say
from spanmq.cli.interrupt import Stop
from spanmq.cli.option import AsJson, Dsn
from spanmq.cli.output import Output

commands = typer.Typer()

# What another try may not meet again: a program that runs for ever goes on.
PASSING: Final = (
    errors.ConnectionFailedError,
    errors.ConnectionLostError,
    errors.ServerExhaustedError,
    errors.StatementCancelledError,
    errors.TransactionConflictError,
)


@commands.command()
def maintain(
    budget: Annotated[int, typer.Option(help="What one step, a transaction, may do at most.")] = 10,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=86_400, help="Go on for ever, with pauses of so many seconds.", show_default=False
        ),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Run maintenance until nothing is left to do: make, truncate and drop segments, move bounds.

    With --every it goes on until Ctrl-C or SIGTERM, which end it after the step that runs. Clients do this
    themselves, in the background; more than one at once does no harm.
    """
    output = Output(as_json=as_json)
    with Stop() as stop, client(dsn) as opened:
        is_first = True
        while not stop.is_set():
            try:
                steps = opened.maintain(budget)
            except PASSING as error:
                if every is None or is_first:
                    raise
                say(describe(error))
                steps = []
            is_first = False
            for step in steps:
                output.done(
                    " ".join(part for part in (step.queue, step.action, step.detail) if part),
                    queue=step.queue,
                    action=step.action,
                    detail=step.detail,
                )
            if not steps and (every is None or stop.wait(every)):
                break
    if stop.was_interrupted:
        say("spanmq: interrupted")
        raise typer.Exit(INTERRUPTED)
