"""Receivers: the streams that consume queues."""

import json
from pathlib import Path
from typing import Annotated

import typer

from spanmq.cli.connect import client
from spanmq.cli.delivering import Category, ErrorText
from spanmq.cli.option import AsJson, Dsn, MessageIds, QueueName, ids_of
from spanmq.cli.output import Output
from spanmq.errors import PipelineError
from spanmq.message import Receiver

commands = typer.Typer()

ReceiverName = Annotated[str, typer.Argument(metavar="RECEIVER", help="Its label or id.", show_default=False)]


@commands.command()
def list_receivers(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Of this queue only.", show_default=False)
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """List the streams that consume queues, and how many messages each holds."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        output.records(opened.list_receivers(queue), empty="no receivers")


@commands.command()
def adopt_receiver(
    queue: QueueName, receiver: ReceiverName, dsn: Dsn = None, as_json: AsJson = False
) -> None:
    """Let the next new checkpoint with this label go on in its place, with what it holds."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        opened.adopt_receiver(queue, receiver)
    output.done(
        f"the next checkpoint with the label of {receiver} goes on in its place",
        queue=queue,
        receiver=receiver,
    )


@commands.command()
def release_receiver(
    queue: QueueName,
    receiver: ReceiverName,
    settled: Annotated[
        int | None,
        typer.Option(help="Settle the batches up to this one first.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            help="Settle what this checkpoint's commit log proves to be done first.", show_default=False
        ),
    ] = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Give what a stream holds back to the queue.

    What its sink has and no checkpoint proves is delivered again.
    """
    output = Output(as_json=as_json)
    if checkpoint is not None and settled is not None:
        raise typer.BadParameter("choose one of --settled and --checkpoint")
    with client(dsn) as opened:
        if checkpoint is not None:
            settled = _proved(checkpoint, opened.list_receivers(queue), receiver)
        count = opened.release_receiver(queue, receiver, settled)
    output.done(
        f"gave {count} messages back to queue {queue}", queue=queue, receiver=receiver, released=count
    )


@commands.command()
def reject_from_receiver(
    queue: QueueName,
    receiver: ReceiverName,
    message_ids: MessageIds,
    error: ErrorText = None,
    category: Category = None,
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Make dead letters of messages that a stream holds and can't bear; then start it again."""
    output = Output(as_json=as_json)
    ids = ids_of(message_ids)
    with client(dsn) as opened:
        count = opened.reject_from_receiver(queue, receiver, ids, error, category=category)
    output.done(f"rejected {count} messages of queue {queue}", queue=queue, receiver=receiver, rejected=count)


@commands.command()
def forget_export(
    queue: QueueName,
    lake: Annotated[str, typer.Argument(metavar="LAKE", help="Its folder's whole path.", show_default=False)],
    dsn: Dsn = None,
    as_json: AsJson = False,
) -> None:
    """Let the retention of a queue's archive no longer wait for a lake that exports wrote into."""
    output = Output(as_json=as_json)
    with client(dsn) as opened:
        forgotten = opened.forget_export(queue, lake)
    sentence = f"retention no longer waits for {lake}" if forgotten else f"no export into {lake} was noted"
    output.done(sentence, queue=queue, lake=lake, forgotten=forgotten)


def _proved(checkpoint: Path, receivers: list[Receiver], named: str) -> int | None:
    """Give the batch of a receiver up to which a checkpoint's commit log says that all is done.

    None where no receiver has that name, which the server will say. Raises PipelineError unless the
    checkpoint is of this receiver: by that of another one messages would be settled that no sink has.
    """
    try:
        commits = [int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit()]
        lines = (checkpoint / "offsets" / str(max(commits))).read_text("utf-8").splitlines()
        offsets = [json.loads(line) for line in lines[2:] if line != "-"]
        done = {each["receiver"]: int(each["lease"]) for each in offsets if "lease" in each}
        queues = sorted({each["queue"] for each in offsets})
    except (OSError, ValueError, KeyError) as error:
        raise PipelineError(
            f"{checkpoint} is no checkpoint of a stream from a queue",
            hint="Name the stream's checkpointLocation.",
        ) from error
    ids = [
        each.receiver_id
        for each in receivers
        if each.receiver_id == named or (each.label == named and each.state != "released")
    ]
    if ids and ids[0] not in done:
        raise PipelineError(
            f"{checkpoint} is the checkpoint of another stream, from {', '.join(queues)}",
            hint=f"That of the receiver {named} has {ids[0]} in its offsets.",
        )
    return done[ids[0]] if ids else None
