"""The SQL functions of receivers and subscriptions: their arguments and rows. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, flag, nothing, number, records
from spanmq.message import Receiver, Subscription


def list_receivers(queue: str | None) -> Call[list[Receiver]]:
    """List receivers."""
    arguments = () if queue is None else (argument.queue_name("queue", queue),)
    return Call("list_receivers", arguments, partial(records, _receiver), queue, native=True)


def adopt_receiver(queue: str, receiver: str) -> Call[None]:
    """Let another checkpoint go on under a label."""
    arguments = (argument.queue_name("queue", queue), argument.text("receiver", receiver))
    return nothing("adopt_receiver", queue, *arguments, native=True)


def release_receiver(queue: str, receiver: str, settled: int | None) -> Call[int]:
    """Give back what a receiver holds."""
    arguments = [argument.queue_name("queue", queue), argument.text("receiver", receiver)]
    if settled is not None:
        arguments.append(argument.bigint("settled", settled))
    return Call("release_receiver", tuple(arguments), number, queue, native=True)


def reject_from_receiver(
    queue: str, receiver: str, message_ids: int | Iterable[int], error: str | None, category: str | None
) -> Call[int]:
    """Make dead letters of messages that a receiver holds."""
    arguments = [
        argument.queue_name("queue", queue),
        argument.text("receiver", receiver),
        argument.bigints("msg_ids", message_ids),
    ]
    if error is not None:
        arguments.append(argument.text("error", error))
    if category is not None:
        arguments.append(argument.text("category", category))
    return Call("reject_from_receiver", tuple(arguments), number, queue, native=True)


def forget_export(queue: str, lake: str) -> Call[bool]:
    """Let retention no longer wait for a lake."""
    arguments = (argument.queue_name("queue", queue), argument.text("lake", lake))
    return Call("forget_export", arguments, flag, queue, native=True)


def _receiver(row: dict[str, Any]) -> Receiver:
    return Receiver(
        queue=row["queue_name"],
        receiver_id=str(row["receiver"]),
        label=row["label"],
        state=row["state"],
        batch=row["batch"],
        settled=row["settled"],
        held=row["held"],
        created_at=row["created_at"],
        opened_at=row["opened_at"],
        seen_at=row["seen_at"],
    )


def create_subscription(name: str, queue: str, waiting: bool) -> Call[None]:
    """Make a subscription."""
    arguments = [argument.queue_name("name", name), argument.queue_name("queue", queue)]
    if waiting:
        arguments.append(argument.boolean("waiting", waiting))
    return nothing("create_subscription", queue, *arguments, native=True)


def list_subscriptions(queue: str | None) -> Call[list[Subscription]]:
    """List subscriptions."""
    arguments = () if queue is None else (argument.queue_name("queue", queue),)
    return Call("list_subscriptions", arguments, partial(records, _subscription), queue, native=True)


def _subscription(row: dict[str, Any]) -> Subscription:
    return Subscription(
        subscription=row["subscription"], queue=row["queue_name"], created_at=row["created_at"]
    )
