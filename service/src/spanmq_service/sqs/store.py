"""The database functions of the SQS protocol: attributes and tags of queues, and moves of messages."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spanmq.client import AsyncClient
from spanmq.client.calls import (
    Rows,
    Seconds,
    SqlCall,
    argument,
    by_lease,
    first,
    flag,
    listed,
    nothing,
    numbers,
    optional,
    optional_queue_call,
    queue_call,
)
from spanmq.codec import Codec, Encryption
from spanmq.model import Message


@dataclass(frozen=True, slots=True)
class SqsOrigin:
    """The source of a message in a dead-letter queue; `source` is the queue's name in SQS.

    `received` is how often the message was received in earlier queues.
    """

    message_id: int
    source: str
    first_queue: str
    first_id: int
    sent_at: datetime
    received: int


@dataclass(frozen=True, slots=True)
class SqsQueue:
    """The attributes and tags of a queue that were set."""

    queue: str
    attributes: dict[str, str]
    tags: dict[str, str]
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class SqsMove:
    """A task that moves messages: RUNNING, CANCELLED, COMPLETED or FAILED."""

    handle: str
    source: str
    destination: str | None
    source_arn: str
    destination_arn: str | None
    access_key_id: str | None
    rate: int | None
    status: str
    moved: int
    to_move: int
    failure: str | None
    started_at: datetime


async def list_queues(client: AsyncClient, queue: str | None = None) -> list[SqsQueue]:
    """Return the stored attributes and tags of a queue, or of all queues."""

    def read(rows: Rows) -> list[SqsQueue]:
        return [
            replace(queue, attributes=_object(queue.attributes), tags=_object(queue.tags))
            for queue in listed(SqsQueue, queue="queue_name")(rows)
        ]

    return await client.admin.run(optional_queue_call(queue, "list_sqs_queues", read))


async def set_queue(
    client: AsyncClient,
    queue: str,
    *,
    attributes: Mapping[str, str | None] | None = None,
    tags: Mapping[str, str | None] | None = None,
) -> None:
    """Set attributes and tags; those that are None are deleted."""
    arguments = (
        argument.json("attributes", json.dumps(dict(attributes or {}))),
        argument.json("tags", json.dumps(dict(tags or {}))),
    )
    await client.admin.run(queue_call(queue, "set_sqs_queue", nothing, *arguments))


async def start_move(
    client: AsyncClient,
    source: str,
    destination: str | None = None,
    *,
    source_arn: str,
    destination_arn: str | None = None,
    to_move: int,
    rate: int | None = None,
    access_key_id: str | None = None,
) -> str | None:
    """Start to move the messages of a dead-letter queue; return the task's handle, or None if one is running.

    Without a destination each message returns to its source queue. `rate` is messages a second. The caller
    needs the right to send to the destination, and so does `access_key_id` at each step.
    """
    arguments = (
        argument.queue_name("source", source),
        argument.text("destination", destination),
        argument.text("source_arn", source_arn),
        argument.text("destination_arn", destination_arn),
        argument.bigint("to_move", to_move),
        *optional(argument.integer, "rate", rate),
        *optional(argument.text, "access_key_id", access_key_id),
    )
    return await client.admin.run(SqlCall("start_sqs_move", arguments, Rows.scalar, source, native=True))


async def list_moves(client: AsyncClient, source: str, quantity: int = 10) -> list[SqsMove]:
    """List the tasks of a source, the newest first."""
    arguments = argument.queue_name("source", source), argument.integer("n", quantity)
    return await client.admin.run(SqlCall("list_sqs_moves", arguments, listed(SqsMove), source, native=True))


async def find_move(client: AsyncClient, handle: str) -> SqsMove | None:
    """Return a task, if it exists."""
    return await client.admin.run(
        optional_queue_call(None, "find_sqs_move", first(SqsMove), argument.text("handle", handle))
    )


async def cancel_move(client: AsyncClient, handle: str) -> int | None:
    """Cancel a task; return the number of moved messages, or None if no such task is running."""
    return await client.admin.run(
        optional_queue_call(None, "cancel_sqs_move", Rows.scalar, argument.text("handle", handle))
    )


async def take_move(client: AsyncClient) -> SqsMove | None:
    """Lock a task whose next step is due until the end of the transaction."""
    return await client.admin.run(optional_queue_call(None, "take_sqs_move", first(SqsMove)))


async def has_moves(client: AsyncClient) -> bool:
    """Return whether any task is running, in this service or another one."""
    return await client.admin.run(optional_queue_call(None, "has_sqs_moves", flag))


async def note_move(
    client: AsyncClient, handle: str, moved: int | None, failure: str | None = None
) -> float | None:
    """Record a step; return the seconds until the next one is due, or None without a task.

    `moved` None: no message can be moved now, so other tasks have priority for a second.
    """
    arguments = (
        argument.text("handle", handle),
        *optional(argument.bigint, "moved", moved),
        *optional(argument.text, "failure", failure),
    )
    return await client.admin.run(optional_queue_call(None, "note_sqs_move", Rows.scalar, *arguments))


async def move_messages(
    client: AsyncClient,
    encryption: Encryption | None,
    messages: Sequence[Message],
    destination: str,
    *,
    expires_in: Seconds,
    task: str | None = None,
) -> list[int]:
    """Move received messages of one queue by its RedrivePolicy, or for a task; return the ids moved.

    Raises NotPossibleError unless one of the two queues names the other as its dead-letter queue.
    """
    encode = Codec(encryption=encryption).of(destination).encode
    bodies = {message.message_id: encode(message.body) for message in messages}
    # The last receive found that the message had been received too often: no receiver got it.
    received = {message.message_id: message.attempt - 1 for message in messages}
    moved: list[int] = []
    for group in by_lease(messages):
        ids = [group.message_ids] if isinstance(group.message_ids, int) else list(group.message_ids)
        arguments = (
            argument.queue_name("source", group.queue),
            argument.queue_name("destination", destination),
            argument.bigint("lease_id", group.lease_id),
            argument.bigints("msg_ids", ids),
            argument.jsons("messages", [bodies[message_id] for message_id in ids]),
            argument.bigints("received", [received[message_id] for message_id in ids]),
            argument.seconds("expires_in", expires_in),
            *optional(argument.text, "task", task),
        )
        moved += await client.admin.run(
            SqlCall("move_sqs_messages", arguments, numbers, group.queue, native=True)
        )
    return moved


async def list_moved(client: AsyncClient, queue: str, message_ids: Iterable[int]) -> list[SqsOrigin]:
    """List the source queues of messages in a dead-letter queue; messages that were not moved are omitted."""
    arguments = (argument.bigints("message_ids", message_ids).to("msg_ids"),)
    read = listed(SqsOrigin, message_id="msg_id")
    return await client.admin.run(queue_call(queue, "list_sqs_moved", read, *arguments))


def _object(value: Any) -> dict[str, str]:
    made: dict[str, str] = json.loads(value) if isinstance(value, str | bytes) else dict(value)
    return made
