"""Move tasks: the messages of a dead-letter queue return to their source queues, or move to another one.

Each service runs the tasks step by step, and any of them can continue any task.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from spanmq.client import AsyncClient
from spanmq.errors import TEMPORARY, MissingPrivilegeError, QueueFullError, QueueNotFoundError, SpanmqError
from spanmq.model import Message
from spanmq_service.backend import Backend
from spanmq_service.guard.caller import caller_of_key
from spanmq_service.sqs import store
from spanmq_service.sqs.call import Call
from spanmq_service.sqs.queue import QueueView, name_of_arn, queue_of_name
from spanmq_service.sqs.refusal import SqsError, bad_value, unsupported
from spanmq_service.sqs.store import SqsMove
from spanmq_service.waiting import UNREADABLE

logger = logging.getLogger("spanmq.service")

RATE_MAX: Final = 500
LISTED_MAX: Final = 10
BATCH: Final = 10
# The longest time for which a moved message is hidden; if the service dies, it is in its queue at once.
HIDDEN_SECONDS: Final = 30.0
# How soon a task is continued that another service has abandoned. Without a task nothing is polled.
LOOK_SECONDS: Final = 1.0


async def start_message_move_task(call: Call) -> dict[str, Any]:
    """Start a task."""
    source = await call.queue("receive", name_of_arn(call.values["SourceArn"]))
    rate = call.values.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise bad_value(f"MaxNumberOfMessagesPerSecond must be 1 to {RATE_MAX}.")
    queues = [QueueView(known) for known in await store.list_queues(call.backend.client)]
    names = [
        queue.name for queue in queues if queue.redrive is not None and queue.redrive.queue == source.name
    ]
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
    call.backend.moves_changed.set()
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
        raise bad_value(f"MaxResults must be 1 to {LISTED_MAX}.")
    moves = await store.list_moves(call.backend.client, source.name, most)
    return {"Results": [_shown(move) for move in moves]}


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


async def run_moves(backend: Backend) -> None:
    """Run the steps of tasks, this service's and those that another has abandoned. Never returns, but can be
    cancelled: a step is one transaction.
    """
    pause: float | None
    while True:
        backend.moves_changed.clear()
        try:
            pause = await _step(backend)
        except TEMPORARY:
            pause = LOOK_SECONDS
        except SpanmqError as error:
            # A schema of another release, without tasks.
            logger.warning("moves_failed error=%s message=%r", type(error).__name__, error.message)
            pause = 60 * LOOK_SECONDS
        except Exception:
            # A bug must not end the tasks of this service.
            logger.exception("moves_broke")
            pause = 60 * LOOK_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(backend.moves_changed.wait(), pause)


async def _step(backend: Backend) -> float | None:
    """Run a step of a task; return the seconds until the next poll, or None if no task runs."""
    move: SqsMove | None = None
    try:
        async with backend.client.transaction() as client:
            move = await store.take_move(client)
            if move is None:
                return LOOK_SECONDS if await store.has_moves(client) else None
            due_in = await store.note_move(client, move.handle, await _move_some(backend, client, move))
    except TEMPORARY:
        raise
    except Exception as error:
        if move is None:
            raise
        if isinstance(error, QueueFullError):
            # The destination is full; other tasks must not wait for it.
            await store.note_move(backend.client, move.handle, None)
        else:
            is_bug = not isinstance(error, SpanmqError)
            name = type(error).__name__
            logger.warning("move_failed source=%s error=%s", move.source, name, exc_info=is_bug)
            await store.note_move(backend.client, move.handle, 0, name)
        return 0.0
    return min(due_in or 0.0, LOOK_SECONDS)


async def _move_some(backend: Backend, client: AsyncClient, move: SqsMove) -> int | None:
    """Move some messages, all in this transaction: each is in exactly one queue.

    Returns None if none of them can be read: they are nacked, and there may be others.
    """
    quantity = BATCH if move.rate is None else min(BATCH, move.rate)
    try:
        messages = await client.receive(move.source, quantity, lease=HIDDEN_SECONDS, slots=quantity)
    except UNREADABLE:
        return None
    targets = await _targets(client, move, messages)
    moved = 0
    for target in sorted(set(targets.values())):
        await _check(backend, move, target)
        [known] = await store.list_queues(client, target)
        chosen = [message for message in messages if targets[message.message_id] == target]
        retention = float(QueueView(known).number("MessageRetentionPeriod"))
        moved += len(
            await store.move_messages(
                client, backend.encryption, chosen, target, expires_in=retention, task=move.handle
            )
        )
    return moved


async def _check(backend: Backend, move: SqsMove, target: str) -> None:
    """Raise MissingPrivilegeError unless the key that started the task still has the rights."""
    if move.access_key_id is None:
        return
    key = await backend.credentials.own_key(move.access_key_id)
    if key is not None:
        caller = caller_of_key(key)
        if caller.may("receive", move.source) and caller.may("send", target):
            return
    raise MissingPrivilegeError("the key that started the task may no longer move these messages")


async def _targets(client: AsyncClient, move: SqsMove, messages: list[Message]) -> dict[int, str]:
    """Return the target queue of each message; raises QueueNotFoundError for an unknown one."""
    if move.destination is not None:
        return dict.fromkeys((message.message_id for message in messages), move.destination)
    ids = [message.message_id for message in messages]
    sources = {
        origin.message_id: queue_of_name(origin.source)
        for origin in await store.list_moved(client, move.source, ids)
    }
    if sources.keys() != set(ids):
        raise QueueNotFoundError("a message was sent to the dead-letter queue itself")
    return sources
