"""The SQL functions for subscriptions: arguments, and what becomes of rows. No I/O here."""

from __future__ import annotations

from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call
from spanmq.message import Subscription
from spanmq.rows import nothing, records


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
