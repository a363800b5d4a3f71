"""Move tasks: the messages of a dead-letter queue return to their source queues, or move to another one."""

from __future__ import annotations

from typing import Any, Final

from spanmq.service.sqs import store
from spanmq.service.sqs.call import Call
from spanmq.service.sqs.queue import QueueView, name_of_arn
from spanmq.service.sqs.refusal import SqsError, bad_value, unsupported
from spanmq.service.sqs.store import SqsMove

RATE_MAX: Final = 500
LISTED_MAX: Final = 10


async def start_message_move_task(call: Call) -> dict[str, Any]:
    """Start a task."""
    source = await call.queue("receive", name_of_arn(call.values["SourceArn"]))
    rate = call.values.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise bad_value(f"MaxNumberOfMessagesPerSecond is of 1 to {RATE_MAX}.")
    queues = [QueueView(known) for known in await store.list_queues(call.backend.client)]
    names = [each.name for each in queues if each.redrive is not None and each.redrive.queue == source.name]
    if not names:
        raise bad_value("The source is not the dead-letter queue of any queue.")
    destination_arn = call.values.get("DestinationArn")
    destination = None
    if destination_arn is not None:
        destination = (await call.queue("send", name_of_arn(destination_arn))).name
        if destination not in names:
            raise bad_value("The destination must have the source as its dead-letter queue.")
    else:
        for name in names:
            call.check("send", name)
    handle = await store.start_move(
        call.backend.client,
        source.name,
        destination,
        source_arn=call.values["SourceArn"],
        destination_arn=destination_arn,
        to_move=(await call.backend.client.queues.metrics(source.name)).length,
        rate=rate,
        access_key_id=call.caller.name or None,
    )
    if handle is None:
        raise unsupported("A second task of the same source")
    call.request.app.state.mover.wake()
    return {"TaskHandle": handle}


async def cancel_message_move_task(call: Call) -> dict[str, Any]:
    """Cancel a task; messages that have been moved stay moved."""
    handle = call.values["TaskHandle"]
    move = await store.find_move(call.backend.client, handle)
    if move is not None:
        call.check("receive", move.source)
    moved = None if move is None else await store.cancel_move(call.backend.client, handle)
    if moved is None:
        raise SqsError("ResourceNotFoundException", "No running task has this handle.", status=404)
    return {"ApproximateNumberOfMessagesMoved": moved}


async def list_message_move_tasks(call: Call) -> dict[str, Any]:
    """List a source's tasks, the newest first."""
    source = await call.queue("look", name_of_arn(call.values["SourceArn"]))
    most = call.values.get("MaxResults", 1)
    if not 1 <= most <= LISTED_MAX:
        raise bad_value(f"MaxResults is of 1 to {LISTED_MAX}.")
    moves = await store.list_moves(call.backend.client, source.name, most)
    return {"Results": [_shown(each) for each in moves]}


def _shown(move: SqsMove) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "TaskHandle": move.handle,
        "Status": move.status,
        "SourceArn": move.source_arn,
        "ApproximateNumberOfMessagesMoved": move.moved,
        "ApproximateNumberOfMessagesToMove": move.to_move,
        "StartedTimestamp": int(move.started_at.timestamp() * 1000),
    }
    optional = {
        "DestinationArn": move.destination_arn,
        "MaxNumberOfMessagesPerSecond": move.rate,
        "FailureReason": move.failure,
    }
    return shown | {name: value for name, value in optional.items() if value is not None}
