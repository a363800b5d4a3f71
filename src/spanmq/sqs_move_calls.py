"""The SQL functions of move tasks: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Rows, Seconds, numbers, records
from spanmq.message import SqsMove, SqsOrigin


def start_sqs_move(
    source: str,
    destination: str | None,
    source_arn: str,
    destination_arn: str | None,
    to_move: int,
    rate: int | None,
    access_key_id: str | None,
) -> Call[str | None]:
    """Begin to move."""
    arguments = [
        argument.queue_name("source", source),
        argument.text("destination", destination),
        argument.text("source_arn", source_arn),
        argument.text("destination_arn", destination_arn),
        argument.bigint("to_move", to_move),
    ]
    if rate is not None:
        arguments.append(argument.integer("rate", rate))
    if access_key_id is not None:
        arguments.append(argument.text("access_key_id", access_key_id))
    return Call("start_sqs_move", tuple(arguments), Rows.scalar, source, native=True)


def list_sqs_moves(source: str, quantity: int) -> Call[list[SqsMove]]:
    """List the tasks of a source."""
    arguments = argument.queue_name("source", source), argument.integer("n", quantity)
    return Call("list_sqs_moves", arguments, partial(records, _move), source, native=True)


def find_sqs_move(handle: str) -> Call[SqsMove | None]:
    """Look one up."""
    return Call("find_sqs_move", (argument.text("handle", handle),), _one, native=True)


def cancel_sqs_move(handle: str) -> Call[int | None]:
    """Move no more."""
    return Call("cancel_sqs_move", (argument.text("handle", handle),), Rows.scalar, native=True)


def take_sqs_move() -> Call[SqsMove | None]:
    """Take a task that is due."""
    return Call("take_sqs_move", (), _one, native=True)


def note_sqs_move(handle: str, moved: int | None, failure: str | None) -> Call[float | None]:
    """Note a step."""
    arguments = [argument.text("handle", handle)]
    if moved is not None:
        arguments.append(argument.bigint("moved", moved))
    if failure is not None:
        arguments.append(argument.text("failure", failure))
    return Call("note_sqs_move", tuple(arguments), Rows.scalar, native=True)


def move_sqs_messages(
    source: str,
    destination: str,
    lease_id: int,
    bodies: Mapping[int, str],
    expires_in: Seconds,
    task: str | None,
) -> Call[list[int]]:
    """Move messages of a lease; `bodies` has the encoded body of each."""
    arguments = [
        argument.queue_name("source", source),
        argument.queue_name("destination", destination),
        argument.bigint("lease_id", lease_id),
        argument.bigints("msg_ids", bodies),
        argument.jsons("messages", bodies.values()),
        argument.seconds("expires_in", expires_in),
    ]
    if task is not None:
        arguments.append(argument.text("task", task))
    return Call("move_sqs_messages", tuple(arguments), numbers, source, native=True)


def list_sqs_moved(queue: str, message_ids: Iterable[int]) -> Call[list[SqsOrigin]]:
    """Look up where messages come from."""
    arguments = argument.queue_name("queue", queue), argument.bigints("msg_ids", message_ids)
    return Call("list_sqs_moved", arguments, partial(records, _origin), queue, native=True)


def _origin(row: dict[str, Any]) -> SqsOrigin:
    return SqsOrigin(row["msg_id"], row["source"], row["first_queue"], row["first_id"], row["sent_at"])


def _one(rows: Rows) -> SqsMove | None:
    found = records(_move, rows)
    return found[0] if found else None


def _move(row: dict[str, Any]) -> SqsMove:
    return SqsMove(**{field.name: row[field.name] for field in fields(SqsMove)})
