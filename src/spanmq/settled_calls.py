"""The SQL functions for waiting until messages are settled, and for results. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial

from spanmq import call as argument
from spanmq.body import Codec
from spanmq.call import Call, Rows, Seconds, nothing, numbers


def await_settled(queue: str, seconds: Seconds) -> Call[str]:
    """Say that a session waits for settlements, and return the channel; what a crash forgets is said again."""
    arguments = (argument.queue_name("queue", queue), argument.seconds("seconds", seconds))
    return Call("await_settled", arguments, Rows.scalar, queue, native=True, volatile=True, idle=True)


def unsettled(queue: str, message_ids: int | Iterable[int]) -> Call[list[int]]:
    """Return those that are not settled."""
    arguments = (argument.queue_name("queue", queue), argument.bigints("msg_ids", message_ids))
    return Call("unsettled", arguments, numbers, queue, native=True, idle=True)


def store_result(queue: str, message_id: int, result: str, keep_for: Seconds) -> Call[None]:
    """Store the result of a message."""
    arguments = (
        argument.queue_name("queue", queue),
        argument.bigint("msg_id", message_id),
        argument.json("result", result),
        argument.seconds("keep_for", keep_for),
    )
    return nothing("store_result", queue, *arguments, native=True)


def get_results(codec: Codec, queue: str, message_ids: int | Iterable[int]) -> Call[dict[int, object]]:
    """Return results by message."""
    arguments = (argument.queue_name("queue", queue), argument.bigints("msg_ids", message_ids))
    return Call("get_results", arguments, partial(_results, codec.of(queue)), queue, native=True)


def _results(codec: Codec, rows: Rows) -> dict[int, object]:
    found = {}
    for row in rows.records():
        # As bytes by psycopg, as a value where a whole row came as JSON.
        raw = row["result"]
        found[int(row["msg_id"])] = codec.decode(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    return found
