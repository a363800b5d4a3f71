"""The SQL functions of the SQS protocol: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Delay, Rows, Shape, flag, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import AccessKey, SqsQueue


def create_access_key(
    access_key_id: str, secret: str, queues: Iterable[str], verbs: Iterable[str], expires: Delay | None
) -> Call[None]:
    """Make a key."""
    if isinstance(queues, str) or isinstance(verbs, str):
        raise InvalidArgumentError("queues and verbs of a key are lists")
    arguments = [
        argument.text("access_key_id", access_key_id),
        argument.text("secret", secret),
        argument.texts("queues", queues),
        argument.texts("verbs", verbs),
    ]
    if expires is not None:
        arguments.append(argument.moment("expires_at", expires))
    return Call("create_access_key", tuple(arguments), lambda _: None, None, Shape.NOTHING, native=True)


def list_access_keys() -> Call[list[AccessKey]]:
    """List them."""
    return Call("list_access_keys", (), partial(records, _key), native=True)


def revoke_access_key(access_key_id: str) -> Call[bool]:
    """End one."""
    return Call("revoke_access_key", (argument.text("access_key_id", access_key_id),), flag, native=True)


def find_access_key(access_key_id: str) -> Call[AccessKey | None]:
    """Look one up, with its secret."""
    arguments = (argument.text("access_key_id", access_key_id),)

    def found(rows: Rows) -> AccessKey | None:
        return _key({**rows.records()[0], "access_key_id": access_key_id}) if rows.values else None

    return Call("find_access_key", arguments, found, native=True)


def list_sqs_queues(queue: str | None) -> Call[list[SqsQueue]]:
    """Look up what SQS knows of queues."""
    arguments = () if queue is None else (argument.queue_name("queue", queue),)
    return Call("list_sqs_queues", arguments, partial(records, _queue), queue, native=True)


def set_sqs_queue(
    queue: str, attributes: Mapping[str, str | None], tags: Mapping[str, str | None]
) -> Call[None]:
    """Add to it."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.json("attributes", json.dumps(dict(attributes))),
        argument.json("tags", json.dumps(dict(tags))),
    )
    return Call("set_sqs_queue", arguments, lambda _: None, queue, Shape.NOTHING, native=True)


def _key(row: dict[str, Any]) -> AccessKey:
    return AccessKey(
        access_key_id=row["access_key_id"],
        queues=row["queues"],
        verbs=row["verbs"],
        created_at=row.get("created_at"),
        expires_at=row.get("expires_at"),
        secret=row.get("secret"),
    )


def _queue(row: dict[str, Any]) -> SqsQueue:
    return SqsQueue(
        queue=row["queue_name"],
        attributes=_object(row["attributes"]),
        tags=_object(row["tags"]),
        created_at=row["created_at"],
        changed_at=row["changed_at"],
    )


def _object(value: Any) -> dict[str, str]:
    made: dict[str, str] = json.loads(value) if isinstance(value, str | bytes) else dict(value)
    return made
