"""The SQL functions of grants: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Shape, flag, records
from spanmq.message import QueueGrant


def grant_queue(role: str, queue: str, verb: str) -> Call[None]:
    """Let a role do something."""
    arguments = (
        argument.text("role", role),
        argument.queue_name("queue", queue),
        argument.text("verb", verb),
    )
    return Call("grant_queue", arguments, lambda _: None, queue, Shape.NOTHING, native=True)


def revoke_queue(role: str, queue: str, verb: str) -> Call[bool]:
    """Take that back."""
    arguments = (
        argument.text("role", role),
        argument.queue_name("queue", queue),
        argument.text("verb", verb),
    )
    return Call("revoke_queue", arguments, flag, queue, native=True)


def grant_all(role: str, verb: str) -> Call[None]:
    """Let a role do something with all queues."""
    arguments = (argument.text("role", role), argument.text("verb", verb))
    return Call("grant_all", arguments, lambda _: None, shape=Shape.NOTHING, native=True)


def revoke_all(role: str, verb: str) -> Call[None]:
    """Take that back."""
    arguments = (argument.text("role", role), argument.text("verb", verb))
    return Call("revoke_all", arguments, lambda _: None, shape=Shape.NOTHING, native=True)


def list_grants(queue: str | None) -> Call[list[QueueGrant]]:
    """List them."""
    arguments = () if queue is None else (argument.queue_name("queue", queue),)
    return Call("list_grants", arguments, partial(records, _grant), queue, native=True)


def _grant(row: dict[str, Any]) -> QueueGrant:
    return QueueGrant(queue=row["queue_name"], role=row["role"], verb=row["verb"])
