"""The SQL functions for batches: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.body import Codec
from spanmq.call import Call, Shape, number, records
from spanmq.message import Batch


def create_batch(queue: str, body: str, headers: str | None) -> Call[int]:
    """Create a batch."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.json("message", body),
        argument.json("headers", headers),
    )
    return Call("create_batch", arguments, number, queue, native=True)


def add_to_batch(queue: str, batch_id: int, message_ids: Iterable[int]) -> Call[int]:
    """Add messages to it."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("batch_id", batch_id),
        argument.bigints("msg_ids", message_ids),
    )
    return Call("add_to_batch", arguments, number, queue, native=True)


def list_batches(codec: Codec, queue: str | None, before: int | None, quantity: int) -> Call[list[Batch]]:
    """List batches."""
    arguments = [argument.integer("qty", quantity)]
    if queue is not None:
        arguments.append(argument.texts("queues", [queue]))
    if before is not None:
        arguments.append(argument.bigint("before", before))
    read = partial(records, partial(_batch, codec))
    return Call("list_batches", tuple(arguments), read, queue, Shape.MESSAGES, native=True)


def _batch(codec: Codec, row: dict[str, Any]) -> Batch:
    given: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Batch)}
    given["body"] = codec.of(row["queue"]).decode(row["message"])
    given["headers"] = None if row["headers"] is None else json.loads(row["headers"])
    given["message_id"] = row["sent_msg_id"]
    return Batch(**given)
