"""Move tasks: the messages of a queue of dead letters go back where they came from, or elsewhere."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from spanmq.errors import QueueNotFoundError, SpanmqError
from spanmq.service.sqs.call import Call
from spanmq.service.sqs.message import MOVED_FROM
from spanmq.service.sqs.queue import QueueView, name_of_arn
from spanmq.service.sqs.refusal import SqsError, bad_value, unsupported

if TYPE_CHECKING:
    from spanmq.service.backend import Backend

logger = logging.getLogger("spanmq.service")

RATE_MAX: Final = 500
BATCH: Final = 10
# A message in the move is hidden so long; if the service dies, it is back in its queue then.
HIDDEN_SECONDS: Final = 30.0
LISTED_MAX: Final = 10
TASKS_MAX: Final = 100


@dataclass(slots=True)
class Move:
    """A task. It lives in this service, and ends with it; what it has not moved stays where it is."""

    source: str
    destination: str | None
    source_arn: str
    destination_arn: str | None
    rate: int | None
    handle: str = field(default_factory=lambda: str(uuid4()))
    started_at: int = field(default_factory=lambda: int(time() * 1000))
    status: str = "RUNNING"
    moved: int = 0
    to_move: int = 0
    failure: str | None = None
    task: asyncio.Task[None] | None = None


# Of this process: tasks by handle, the newest last.
_moves: dict[str, Move] = {}


async def start_message_move_task(call: Call) -> dict[str, Any]:
    """Begin to move."""
    source = await call.queue("receive", name_of_arn(call.values["SourceArn"]))
    rate = call.values.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise bad_value(f"MaxNumberOfMessagesPerSecond is of 1 to {RATE_MAX}.")
    sources = [QueueView(known) for known in await call.backend.client.list_sqs_queues()]
    if not any(each.redrive is not None and each.redrive.queue == source.name for each in sources):
        raise bad_value("The source is no queue of dead letters of any other.")
    destination_arn = call.values.get("DestinationArn")
    destination = None
    if destination_arn is not None:
        destination = (await call.queue("send", name_of_arn(destination_arn))).name
    else:
        for each in sources:
            if each.redrive is not None and each.redrive.queue == source.name:
                call.check("send", each.name)
    if any(each.source == source.name and each.status == "RUNNING" for each in _moves.values()):
        raise unsupported("A second task of the same source")
    move = Move(source.name, destination, call.values["SourceArn"], destination_arn, rate)
    move.to_move = (await call.backend.client.metrics(source.name)).length
    while len(_moves) >= TASKS_MAX:
        ended = next((key for key, each in _moves.items() if each.status != "RUNNING"), None)
        if ended is None:
            raise SqsError("OverLimit", "Too many move tasks run.")
        del _moves[ended]
    _moves[move.handle] = move
    move.task = asyncio.create_task(_run(call.backend, move))
    return {"TaskHandle": move.handle}


async def cancel_message_move_task(call: Call) -> dict[str, Any]:
    """Move no more; what was moved stays moved."""
    move = _moves.get(call.values["TaskHandle"])
    if move is None or move.status != "RUNNING":
        raise SqsError("ResourceNotFoundException", "There is no such task that runs.", status=404)
    call.check("receive", move.source)
    move.status = "CANCELLING"
    if move.task is not None:
        await asyncio.wait([move.task])
    return {"ApproximateNumberOfMessagesMoved": move.moved}


async def list_message_move_tasks(call: Call) -> dict[str, Any]:
    """List the newest tasks of a source."""
    source = await call.queue("look", name_of_arn(call.values["SourceArn"]))
    most = call.values.get("MaxResults", 1)
    if not 1 <= most <= LISTED_MAX:
        raise bad_value(f"MaxResults is of 1 to {LISTED_MAX}.")
    found = [each for each in reversed(_moves.values()) if each.source == source.name][:most]
    return {"Results": [_shown(each) for each in found]}


async def _run(backend: Backend, move: Move) -> None:
    began = monotonic()
    try:
        while move.status == "RUNNING" and not backend.is_stopping:
            if not (count := await _step(backend, move)):
                break
            move.moved += count
            if move.rate is not None:
                await asyncio.sleep(max(began + move.moved / move.rate - monotonic(), 0))
        move.status = "CANCELLED" if move.status == "CANCELLING" else "COMPLETED"
    except SpanmqError as error:
        logger.warning("move_failed source=%s error=%s", move.source, type(error).__name__)
        move.status, move.failure = "FAILED", type(error).__name__
    except BaseException:
        move.status = "FAILED"
        raise


async def _step(backend: Backend, move: Move) -> int:
    """Move some messages in one transaction: each is in exactly one queue whatever happens."""
    quantity = BATCH if move.rate is None else min(BATCH, move.rate)
    async with backend.client.transaction() as client:
        messages = await client.receive(move.source, quantity, lease=HIDDEN_SECONDS)
        for message in messages:
            headers = dict(message.headers or {})
            target = move.destination or headers.pop(MOVED_FROM, None)
            if target is None:
                raise QueueNotFoundError("a message does not say where it came from")
            await client.send(
                target,
                message.body,
                headers=headers,
                group=message.group,
                ordered=str(target).endswith(".fifo"),
            )
        if messages:
            await client.ack(messages)
    return len(messages)


def _shown(move: Move) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "TaskHandle": move.handle,
        "Status": move.status,
        "SourceArn": move.source_arn,
        "ApproximateNumberOfMessagesMoved": move.moved,
        "ApproximateNumberOfMessagesToMove": move.to_move,
        "StartedTimestamp": move.started_at,
    }
    optional = {
        "DestinationArn": move.destination_arn,
        "MaxNumberOfMessagesPerSecond": move.rate,
        "FailureReason": move.failure,
    }
    return shown | {name: value for name, value in optional.items() if value is not None}
