"""Calls of SQL functions that several modules of the pipeline make, and how their rows are read. No I/O."""

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from spanmq.client.calls import (
    Argument,
    Rows,
    SqlCall,
    argument,
    flag,
    json_value,
    nothing,
    numbers,
    queue_call,
    string,
)

Position = dict[str, Any]


def columns(*names: str) -> Callable[[Rows], list[Any]]:
    """Return a reader of these columns of each row, UUIDs as texts."""
    pick = itemgetter(*names)
    return lambda rows: [
        tuple(str(value) if isinstance(value, UUID) else value for value in pick(row))
        for row in rows.records()
    ]


def receiver_open(
    queue: str, *, receiver: str | None = None, label: str | None = None
) -> SqlCall[list[tuple[str, int, int, str, str | None]]]:
    """Open a receiver by its id or its label, or make one; the row has what is read here."""
    read = columns("receiver_id", "incarnation", "settled", "system_id", "token")
    arguments = (
        *argument.optional(argument.uuid, "receiver", receiver),
        *argument.optional(argument.text, "label", label),
    )
    return queue_call(queue, "receiver_open", read, *arguments)


def position(name: str, value: Position | None) -> Argument:
    """Pass a position in an archive, which is the server's to read."""
    return argument.json(name, None if value is None else json.dumps(value))


def archive_position(queue: str, start: Position | None = None) -> SqlCall[tuple[Position, bool, str]]:
    """Return the position of now, whether retention has deleted what is after `start`, and the archive's identity."""

    def read(rows: Rows) -> tuple[Position, bool, str]:
        [(here, is_gone, identity)] = columns("here", "is_gone", "identity")(rows)
        return json_value(here), is_gone, identity

    return queue_call(queue, "archive_position", read, position("from_position", start))


def known_positions(queue: str, tokens: Sequence[str]) -> SqlCall[set[str]]:
    """Return those of the tokens that the database knows for a queue."""
    uuids = argument.uuids("tokens", filter(None, tokens))
    return queue_call(queue, "known_positions", lambda rows: set(map(str, rows.scalar())), uuids)


def note_position(queue: str, follows: str | None = None, witnesses: Sequence[str] = ()) -> SqlCall[str]:
    """Note a position; return its token. Raises PositionUnknownError if the database lacks one of those given."""
    known = argument.uuids("witnesses", witnesses)
    arguments = (*argument.optional(argument.uuid, "follows", follows or None), known)
    return queue_call(queue, "note_position", string, *arguments)


def read_ranges(queue: str, table: str, size: int, at_least: int = 1) -> SqlCall[list[tuple[int, int]]]:
    """Cut the ids of a table of a queue into ranges of about `size` rows each."""
    arguments = (
        argument.text("table", table).to("of_table"),
        argument.integer("size", size),
        argument.integer("at_least", at_least),
    )
    return queue_call(queue, "read_ranges", columns("first_id", "last_id"), *arguments)


def published_epochs(queue: str, writer: str) -> SqlCall[list[int]]:
    """Return the epochs of a writer that the ledger of a queue has, in order."""
    return queue_call(queue, "published_epochs", numbers, argument.text("writer", writer))


def noted_export(
    queue: str, lake: str, table: str, token: str
) -> SqlCall[tuple[str, int | None, str | None, datetime | None] | None]:
    """Return which export of a lake, or of that whose copy it is, the database has noted last."""
    arguments = (
        argument.text("lake", lake),
        argument.text("table", table).to("of_table"),
        *argument.optional(argument.uuid, "held", token or None),
    )
    read = columns("noted_as", "number", "token", "refused_at")
    return queue_call(queue, "noted_export", lambda rows: next(iter(read(rows)), None), *arguments)


def multirange(ids: Sequence[tuple[int, int]]) -> str:
    """Write ranges of ids as an int8multirange."""
    return "{" + ",".join(f"[{first},{last}]" for first, last in ids) + "}"


def note_export(
    queue: str,
    lake: str,
    table: str,
    ids: Sequence[tuple[int, int]],
    blocks: Sequence[int] | None,
    newest: tuple[int, str | None],
) -> SqlCall[None]:
    """Note that a lake has these ids, of all or of some blocks, by its export of this number and position."""
    number, position = newest
    arguments = (
        argument.text("lake", lake),
        argument.Argument("ids", multirange(ids), "cast({} as int8multirange)"),
        argument.text("table", table).to("of_table"),
        *argument.optional(argument.bigints, "blocks", blocks),
        argument.bigint("number", number),
        *argument.optional(argument.uuid, "token", position),
    )
    return queue_call(queue, "note_export", nothing, *arguments)


def hold_export(queue: str, lake: str, table: str) -> SqlCall[bool]:
    """Make the session the only one that exports a table into a lake; return False if another session is."""
    arguments = argument.text("lake", lake), argument.text("table", table).to("of_table")
    return queue_call(queue, "hold_export", flag, *arguments)


def refuse_export(queue: str, lake: str, table: str) -> SqlCall[None]:
    """Refuse a lake: retention keeps the archive from now on."""
    arguments = argument.text("lake", lake), argument.text("table", table).to("of_table")
    return queue_call(queue, "refuse_export", nothing, *arguments)
