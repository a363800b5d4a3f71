"""The check before a deploy: what a program's tasks would make of what is queued."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from spanmq import errors
from spanmq.cli.connect import address
from spanmq.cli.failure import FAILED
from spanmq.cli.option import AsJson
from spanmq.cli.output import Output
from spanmq.cli.verbs import Commands
from spanmq.cli.work import Modules, program_of

if TYPE_CHECKING:
    from spanmq.tasks import QueuedCalls

commands = Commands()

COLUMNS: Final = ("queue", "result", "message")


@commands.command()
def check(
    tasks: Annotated[
        str, typer.Argument(metavar="MODULE:TASKS", help="The tasks, such as shop.tasks:tasks.")
    ],
    modules: Modules = None,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="Only this queue of the tasks; may be given again."),
    ] = None,
    dsn: Annotated[
        str | None,
        typer.Option(
            "--against",
            "--dsn",
            envvar="SPANMQ_DSN",
            metavar="DSN",
            help="The database whose queues are read. Default: the embedded server.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="Number of messages of a queue to read.")
    ] = 5_000,
    as_json: AsJson = False,
) -> None:
    """Compare the signatures of tasks with what is queued, delayed, scheduled and dead: what would a deploy break?

    Exits 1 if a queued or scheduled message could not run. It reads up to --limit messages of a queue, and says so
    where there are more; of the others it has what senders noted. It changes nothing.

    $ spanmq check shop.tasks:tasks --against "$PRODUCTION_DSN"
    """
    sys.path.insert(0, "")
    program, _ = program_of(tasks, modules or [], takes_batches=False)
    if program is None:
        raise errors.InvalidArgumentError(f"{tasks} is a function: only tasks have signatures to check")
    with address(dsn) as conninfo:
        checked = program.check(queue or None, dsn=conninfo, limit=limit)
    output = Output(as_json=as_json)
    output.show(
        checked if as_json else [_shown(calls) for calls in checked],
        columns=COLUMNS,
        empty="nothing is queued for these tasks",
    )
    if any(calls.is_breaking for calls in checked):
        raise typer.Exit(FAILED)


def _shown(checked: "QueuedCalls") -> dict[str, str]:
    return {
        "queue": checked.queue,
        "result": "fails" if checked.is_breaking else "ok",
        "message": checked.sentence,
    }
