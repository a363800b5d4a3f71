"""What a command prints on stdout: a table for a person, columns for a pipe, or JSON, a line a record."""

import dataclasses
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from spanmq.cli.table import print_table
from spanmq.codec.body import RawJson

Record = dict[str, Any]

# The columns of a message in a table; JSON has all fields.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """What a command has done: a sentence for a person, a record for --json."""

    sentence: str
    record: Record


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """No records, and the sentence that explains it to a person, made when it is printed."""

    sentence: Callable[[], str]


class Output:
    """Where a command's result goes."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        if isinstance(sys.stdout, io.TextIOWrapper):
            if as_json:  # JSON is UTF-8, whatever the locale says
                sys.stdout.reconfigure(encoding="utf-8")
            else:  # a character that the terminal cannot display must not end a listing
                sys.stdout.reconfigure(errors="backslashreplace")

    def show(self, result: Any, *, columns: Sequence[str] = (), empty: str = "no records") -> None:
        """Print what a verb returned: a Done, one dataclass or dictionary, or several of one kind.

        `columns` are those of a table, which has the ones that hold a value somewhere; a column `state` shows
        whether a queue is paused. `empty` tells a person that there are no records.
        """
        if isinstance(result, Done):
            self.done(result.sentence, **result.record)
        elif isinstance(result, Nothing):
            self.show((), empty="" if self.as_json else result.sentence())
        elif dataclasses.is_dataclass(result) or isinstance(result, dict):
            self.records([result], columns=columns)
        else:
            self.records(result, columns=columns, empty=empty)

    def records(
        self, records: Iterable[Any], *, columns: Sequence[str] = (), empty: str = "no records"
    ) -> None:
        """Print dataclasses or dictionaries of one kind; see `show`."""
        rows = [each if isinstance(each, dict) else fields(each) for each in records]
        if self.as_json:
            for row in rows:
                sys.stdout.write(to_json(row) + "\n")
        elif not rows:
            sys.stdout.write(empty + "\n")
        else:
            if "state" in columns:
                rows = [{"state": state_of(row), **row} for row in rows]
            names = [name for name in columns if any(row.get(name) is not None for row in rows)] or list(
                rows[0]
            )
            print_table(
                [name.replace("_", " ") for name in names], [[row[name] for name in names] for row in rows]
            )
        # Here, and not at the end of the program: `spanmq message peek orders | head` should end in silence.
        sys.stdout.flush()

    def done(self, sentence: str, **record: Any) -> None:
        """Print the result: a sentence, or one record."""
        sys.stdout.write((to_json(record) if self.as_json else sentence) + "\n")
        sys.stdout.flush()


def state_of(queue: Record) -> str | None:
    """Return whether a queue is paused or a circuit breaker is open, None if neither."""
    states = ["paused"] if queue.get("is_paused") else []
    if queue.get("breaker_open_until") is not None:
        states.append("breaker open")
    return ", ".join(states) or None


def to_json(record: Record) -> str:
    """Write a record as a line of JSON; its body is as the server returned it, to the last digit."""
    parts = (f"{json.dumps(name)}:{_json_of(value)}" for name, value in record.items())
    return "{" + ",".join(parts) + "}"


def fields(record: Any) -> Record:
    """Return a dataclass's fields, as they are."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def _json_of(value: object) -> str:
    if isinstance(value, RawJson):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return fields(value)
    raise TypeError(f"a {type(value).__qualname__} has no JSON")
