"""What a command prints on stdout: a table for a person, columns for a pipe, or JSON, a line a record."""

import dataclasses
import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from spanmq.body import RawJson
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
        sys.stdout.flush()

    def messages(self, messages: Sequence[Message], *, empty: str = "no messages") -> None:
        """Print messages."""
        self.records(messages, columns=MESSAGE_COLUMNS, empty=empty)

    def done(self, sentence: str, **record: Any) -> None:
        """Print what was done: a sentence, or one record."""
        sys.stdout.write((to_json(record) if self.as_json else sentence) + "\n")
        sys.stdout.flush()


def to_json(record: Record) -> str:
    """Write a record as a line of JSON; a body stands in it as the server gave it, to the last digit."""
    parts = (f"{json.dumps(name)}:{_json_of(value)}" for name, value in record.items())
    return "{" + ",".join(parts) + "}"


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: on a terminal cut to its width, else columns of full length."""
    cells = [[_text_of(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        for row in ([name.upper() for name in names], *cells):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write("  ".join(padded).rstrip() + "\n")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, (name, values) in enumerate(zip(names, zip(*rows, strict=True), strict=True)):
        is_long = any(isinstance(value, RawJson | dict | tuple) for value in values)
        table.add_column(
            name,
            justify="right" if all(type(value) in (int, float) for value in values) else "left",
            no_wrap=True,
            overflow="ellipsis",
            # Numbers, names and times are needed whole; a body gives way.
            min_width=None if is_long else max(len(name), *(len(row[number]) for row in cells)),
        )
    for row in cells:
        # Text, not str: what somebody sent is no markup.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def fields(record: Any) -> Record:
    """Give a dataclass's fields, as they are."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _json_of(value: object) -> str:
    return (
        _raw(value) if isinstance(value, RawJson) else json.dumps(value, ensure_ascii=False, default=_plain)
    )


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return fields(value)
    raise TypeError(f"a {type(value).__qualname__} has no JSON")


def _text_of(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, RawJson):
        return _raw(value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _raw(value: RawJson) -> str:
    return value.text if isinstance(value.text, str) else value.text.decode()
