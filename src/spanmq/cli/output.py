"""What a command prints on stdout: a table for a person, columns for a pipe, or JSON, a line a record."""

import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from spanmq.body import RawJson
from spanmq.cli.table import print_table, raw
from spanmq.message import Message

Record = dict[str, Any]

# Of a message, in the order of a table; JSON has all fields.
MESSAGE_COLUMNS: Final = (
    "message_id",
    "attempt",
    "lease_id",
    "leased_until",
    "archived_at",
    "group",
    "headers",
    "body",
)

# Of a queue: what a table shows in one column.
STATES: Final = ("is_paused", "breaker_open_until", "state")


class Output:
    """Where a command's result goes."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        if isinstance(sys.stdout, io.TextIOWrapper):
            if as_json:  # JSON is UTF-8, whatever the locale says
                sys.stdout.reconfigure(encoding="utf-8")
            else:  # a character that a terminal can't show must not end a listing
                sys.stdout.reconfigure(errors="backslashreplace")

    def records(
        self, records: Iterable[Any], *, columns: Sequence[str] = (), empty: str = "nothing there"
    ) -> None:
        """Print dataclasses or dictionaries of one kind; `empty` tells a person that there are none.

        `columns` are those of a table; of these it gets the ones that hold a value somewhere.
        """
        rows = [each if isinstance(each, dict) else fields(each) for each in records]
        if self.as_json:
            for row in rows:
                sys.stdout.write(to_json(row) + "\n")
        elif not rows:
            sys.stdout.write(empty + "\n")
        else:
            names = [name for name in columns if any(row.get(name) is not None for row in rows)] or list(
                rows[0]
            )
            print_table(
                [name.replace("_", " ") for name in names], [[row[name] for name in names] for row in rows]
            )
        # Here, and not at the end of the program: `spanmq peek orders | head` should end in silence.
        sys.stdout.flush()

    def queues(
        self, records: Iterable[Any], *, columns: Sequence[str] = (), empty: str = "no queues"
    ) -> None:
        """Print records of queues; a table has a column `state` if a queue is paused or a breaker is open."""
        rows = [each if isinstance(each, dict) else fields(each) for each in records]
        if not self.as_json:
            rows = [row | {"state": state_of(row)} for row in rows]
            names = columns or (list(rows[0]) if rows else ())
            columns = [name for name in names if name not in STATES]
            columns[1:1] = ["state"]
        self.records(rows, columns=columns, empty=empty)

    def messages(self, messages: Sequence[Message], *, empty: str = "no messages") -> None:
        """Print messages."""
        self.records(messages, columns=MESSAGE_COLUMNS, empty=empty)

    def done(self, sentence: str, **record: Any) -> None:
        """Print what was done: a sentence, or one record."""
        sys.stdout.write((to_json(record) if self.as_json else sentence) + "\n")
        sys.stdout.flush()


def state_of(queue: Record) -> str | None:
    """Return what a person must know of a queue before its figures, None if there is nothing."""
    states = ["paused"] if queue.get("is_paused") else []
    if queue.get("breaker_open_until") is not None:
        states.append("breaker open")
    return ", ".join(states) or None


def to_json(record: Record) -> str:
    """Write a record as a line of JSON; a body stands in it as the server gave it, to the last digit."""
    parts = (f"{json.dumps(name)}:{_json_of(value)}" for name, value in record.items())
    return "{" + ",".join(parts) + "}"


def fields(record: Any) -> Record:
    """Give a dataclass's fields, as they are."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _json_of(value: object) -> str:
    if isinstance(value, RawJson):
        return raw(value)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return fields(value)
    raise TypeError(f"a {type(value).__qualname__} has no JSON")
