"""The noun `receiver`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spanmq.cli.parts import Commands, Done, QueueName, ReceiverName, number_of
from spanmq.errors import PipelineError

if TYPE_CHECKING:
    from spanmq.client import Client
    from spanmq.model import Receiver

receiver = Commands()


@receiver.verb()
def release(
    client: "Client",
    queue: QueueName,
    receiver: ReceiverName,
    settled: Annotated[int | None, typer.Option(help="Settle the batches up to this one first.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="First settle the batches that this checkpoint has committed.")
    ] = None,
) -> Done:
    """Return the messages that a stream holds to the queue.

    Messages that its sink has written, but no checkpoint has committed, are delivered again.

    $ spanmq receiver release orders lake --checkpoint /lake/checkpoint
    """
    if checkpoint is not None and settled is not None:
        raise typer.BadParameter("--settled and --checkpoint can't be used together")
    token: str | None = None
    if checkpoint is not None:
        settled, token = _committed(checkpoint, client.admin.receivers.list(queue), receiver)
    released = client.admin.receivers.release(queue, receiver, settled, settled_token=token)
    sentence = f"returned {number_of(released, 'message')} to queue {queue}"
    return Done(sentence, {"queue": queue, "receiver": receiver, "released": released})


def _committed(checkpoint: Path, receivers: "list[Receiver]", named: str) -> tuple[int | None, str | None]:
    """Return the last batch of a receiver that a checkpoint has committed, and its token.

    None if no receiver has that name, which the server reports. Raises PipelineError if the checkpoint is
    another receiver's: with it, messages would be settled that no sink has written.
    """
    try:
        commits = [int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
        lines = (checkpoint / "offsets" / str(max(commits))).read_text("utf-8").splitlines()
        sources = [json.loads(line) for line in lines[2:] if line != "-"]
        # A source of several queues has an offset of each.
        offsets = [offset for source in sources for offset in source.get("queues", {"": source}).values()]
        done = {
            offset["receiver"]: (int(offset["lease"]), offset["token"])
            for offset in offsets
            if "lease" in offset
        }
        queues = sorted({offset["queue"] for offset in offsets})
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise PipelineError(
            f"{checkpoint} is not the checkpoint of a stream from a queue",
            hint="Pass the stream's checkpointLocation.",
        ) from error
    ids = [
        candidate.receiver_id
        for candidate in receivers
        if candidate.receiver_id == named or (candidate.label == named and candidate.state != "released")
    ]
    if ids and ids[0] not in done:
        raise PipelineError(
            f"{checkpoint} is the checkpoint of another stream, from {', '.join(queues)}",
            hint=f"That of the receiver {named} has {ids[0]} in its offsets.",
        )
    return done[ids[0]] if ids else (None, None)
