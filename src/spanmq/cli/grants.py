"""Grants: which role may do what with a queue."""

from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.option import AsJson, Dsn, QueueName
from spanmq.cli.output import Output

commands = typer.Typer()

RoleName = Annotated[
    str, typer.Argument(metavar="ROLE", help="A role of the database, or public.", show_default=False)
]
Verb = Annotated[
    str, typer.Argument(metavar="send|receive|manage", help="What it may do.", show_default=False)
]


@commands.command()
def grant_queue(
    role: RoleName, queue: QueueName, verb: Verb, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Let a role send to a queue, receive from it, or manage it."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.grant_queue(role, queue, verb)
    output.done(f"{role} may {verb}: {queue}", role=role, queue=queue, verb=verb)


@commands.command()
def revoke_queue(
    role: RoleName, queue: QueueName, verb: Verb, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Take back what grant-queue gave."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        is_gone = opened.revoke_queue(role, queue, verb)
    said = f"{role} may no longer {verb}: {queue}" if is_gone else f"{role} may do some of it by another way"
    output.done(said, role=role, queue=queue, verb=verb, is_gone=is_gone)


@commands.command()
def list_grants(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="The queue; all of yours without.")
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Tell who may do what."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_grants(queue), columns=("queue", "role", "verb"), empty="no grants")
