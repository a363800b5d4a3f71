"""The SQL functions of settling under a lease: arguments, and what becomes of rows. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Argument, Call, Seconds, nothing, number, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import Failure, Message, Settled
from spanmq.message_rows import settlements


@dataclass(frozen=True, slots=True)
class Reason:
    """Why messages are given back or given up."""

    error: str | None = None
    category: str | None = None
    error_class: str | None = None
    traceback: str | None = None
    worker: str | None = None

    def arguments(self) -> tuple[Argument, ...]:
        """Give those that say something."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return tuple(argument.text(name, value) for name, value in given.items() if value is not None)


def by_lease(messages: Message | Iterable[Message]) -> dict[tuple[str, int], list[int]]:
    """Give the ids of messages by queue and lease; raises InvalidArgumentError for one without a lease."""
    leases: dict[tuple[str, int], list[int]] = {}
    # What a type checker would have told.
    given: object = [messages] if isinstance(messages, Message) else messages
    for message in given if isinstance(given, Iterable) else [given]:
        if not isinstance(message, Message):
            raise InvalidArgumentError(
                f"only messages that `receive` gave can be settled so, got {type(message).__name__}",
                hint="ack_lease, nack_lease, reject_lease and release_lease take ids.",
            )
        if message.lease_id is None:
            raise InvalidArgumentError(
                f"message {message.message_id} was not received under a lease",
                hint="Settle what `read` gave with delete or archive.",
                queue=message.queue,
            )
        leases.setdefault((message.queue, message.lease_id), []).append(message.message_id)
    return leases


def nack(
    queue: str, lease_id: int, message_ids: int | Iterable[int], reason: Reason, retry_in: Seconds | None
) -> Call[list[Settled]]:
    """Give messages back with a failure."""
    arguments = (*_held(queue, lease_id, message_ids), *reason.arguments())
    if retry_in is not None:
        arguments = (*arguments, argument.seconds("retry_in", retry_in))
    return Call("nack", arguments, settlements, queue, native=True)


def reject(
    queue: str, lease_id: int, message_ids: int | Iterable[int], reason: Reason
) -> Call[list[Settled]]:
    """Give messages up."""
    arguments = (*_held(queue, lease_id, message_ids), *reason.arguments())
    return Call("reject", arguments, settlements, queue, native=True)


def release(queue: str, lease_id: int, message_ids: int | Iterable[int]) -> Call[list[Settled]]:
    """Give messages back unhandled."""
    arguments = _held(queue, lease_id, message_ids)
    return Call("release", arguments, settlements, queue, native=True)


def extend(queue: str, lease_id: int, seconds: Seconds) -> Call[int]:
    """Hold a lease longer."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("lease_id", lease_id),
        argument.seconds("seconds", seconds),
    )
    return Call("extend", arguments, number, queue, native=True)


def hold(
    queue: str, lease_id: int, message_ids: int | Iterable[int], seconds: Seconds
) -> Call[list[Settled]]:
    """Hold single messages of a lease for another time."""
    arguments = (*_held(queue, lease_id, message_ids), argument.seconds("seconds", seconds))
    return Call("hold", arguments, settlements, queue, native=True)


def pause(queue: str) -> Call[None]:
    """Let receivers get nothing."""
    return nothing("pause", queue, argument.queue_name("queue", queue), native=True)


def resume(queue: str) -> Call[None]:
    """Let them get messages again."""
    return nothing("resume", queue, argument.queue_name("queue", queue), native=True)


def status(queue: str, message_id: int) -> Call[str]:
    """Look up the state of a message."""
    return Call("status", _one(queue, message_id), lambda rows: str(rows.scalar()), queue, native=True)


def failures(queue: str, message_id: int) -> Call[list[Failure]]:
    """Look up what went wrong with a message."""
    return Call("failures", _one(queue, message_id), partial(records, _failure), queue, native=True)


def _held(queue: str, lease_id: int, message_ids: int | Iterable[int]) -> tuple[Argument, ...]:
    return (
        argument.queue_name("queue", queue),
        argument.bigint("lease_id", lease_id),
        argument.bigints("msg_ids", message_ids),
    )


def _one(queue: str, message_id: int) -> tuple[Argument, Argument]:
    return argument.queue_name("queue", queue), argument.bigint("msg_id", message_id)


def _failure(row: dict[str, Any]) -> Failure:
    return Failure(**{field.name: row[field.name] for field in fields(Failure)})
