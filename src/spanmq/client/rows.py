"""Messages from rows. Every received message passes through here, so each step is short. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from spanmq.client.call import Rows
from spanmq.codec.body import Codec, read_json, unread
from spanmq.model import GROUP_HEADER, Message, Settled

Pick = Callable[[Sequence[Any]], tuple[Any, ...]]

# The columns of a message, in this order; of two names, the first that exists. Columns that a function does
# not return are None.
COLUMNS: Final = (
    ("msg_id",),
    ("message",),
    ("headers",),
    ("attempt", "read_ct"),
    ("enqueued_at",),
    ("vt",),
    ("last_read_at",),
    ("lease_id",),
    ("slot",),
    ("group_key",),
    ("last_error",),
    ("archived_at",),
)


def messages(codec: Codec, queue: str, rows: Rows) -> list[Message]:
    """Return messages from rows of `message_record` or of types with more columns."""
    pick, decode = _picker(rows.columns), codec.decode
    found = []
    for row in rows.values:
        # With a place for what there is no column for.
        number, body, raw, attempt, sent_at, until, read_at, lease, slot, group, error, archived_at = pick(
            (*row, None)
        )
        body = decode(body)
        try:
            headers = None if raw is None else read_json(raw)
        except RecursionError as reason:
            headers, body = None, unread(raw, "headers", reason)
        # PGMQ takes any JSON as headers.
        if group is None and type(headers) is dict and (value := headers.get(GROUP_HEADER)) is not None:
            group = str(value)
        found.append(
            Message(
                queue=queue,
                message_id=number,
                body=body,
                headers=headers,
                attempt=attempt,
                enqueued_at=sent_at,
                leased_until=until,
                last_read_at=read_at,
                lease_id=lease,
                slot=slot,
                group=group,
                last_error=error,
                archived_at=archived_at,
            )
        )
    return found


def settlements(rows: Rows) -> list[Settled]:
    """Return the outcomes of settled messages."""
    if not rows.values:  # nor names of columns, through some drivers
        return []
    number, outcome = rows.columns.index("msg_id"), rows.columns.index("outcome")
    return [Settled(row[number], row[outcome]) for row in rows.values]


@lru_cache(maxsize=64)
def _picker(columns: tuple[str, ...]) -> Pick:
    """Return a function that picks the fields of a message out of a row, to which a None was added."""
    places = {name: place for place, name in enumerate(columns)}
    return itemgetter(
        *(next((places[name] for name in names if name in places), len(columns)) for names in COLUMNS)
    )


# The nearest to PostgreSQL's times before the year 1, after 9999 and infinity, which Python does not have:
# a day within its range, so that they can be shown in any time zone.
EARLIEST: Final = datetime(1, 1, 2, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)


def read_time(text: str) -> datetime:
    """Read a time as PostgreSQL writes it in JSON; for one that Python has not the nearest."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return EARLIEST if text.startswith("-") or text.endswith("BC") else LATEST


def templates(codec: Codec, rows: Rows) -> list[dict[str, Any]]:
    """Return rows that have the body and headers of a message to come, decoded."""
    return [
        row
        | {
            "message": codec.of(row["queue"]).decode(row["message"]),
            "headers": None if row["headers"] is None else json.loads(row["headers"]),
        }
        for row in rows.records()
    ]
