"""The output of a command on stdout: a table on a terminal, columns in a pipe, or JSON, a line a record."""

import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spanmq.codec.body import to_json

if TYPE_CHECKING:
    from rich.console import Console

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
# Numbers, names and times are shorter and shown in full; longer columns shrink.
LONG: Final = 40
# The minimal width of the remaining column; with less, or with a value of several lines, each row is a block.
LONG_MIN: Final = 16
GAP: Final = 2
# The same in a pipe, which has no width.
PIPE_WIDTH: Final = 200
# On a narrow terminal the columns of a list leave from the right, so the most important ones stand first. These stay.
STAYING: Final = frozenset({"body", "error", "details", "advice"})
# Sentences for a person, whose end says as much as their beginning: they wrap, others are cut.
SENTENCES: Final = frozenset({"message", "because"})
# Names of columns that lack their unit.
HEADS: Final = {"p50": "p50 seconds", "p95": "p95 seconds"}
# Not line ends and tabs.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The result of a command: a sentence for a terminal, a record for --json."""

    sentence: str
    record: Record


@dataclasses.dataclass(frozen=True, slots=True)
class Nothing:
    """No records, and the sentence that explains it to a person, made when it is printed."""

    sentence: Callable[[], str]


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """Records, and a sentence about all of them that a person reads below."""

    records: Sequence[Any]
    sentence: str


class Output:
    """The destination of a command's result."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        if isinstance(sys.stdout, io.TextIOWrapper):
            if as_json:  # JSON is UTF-8, whatever the locale says
                sys.stdout.reconfigure(encoding="utf-8")
            else:  # a character that the terminal cannot display must not end a listing
                sys.stdout.reconfigure(errors="backslashreplace")

    def show(self, result: Any, *, columns: Sequence[str] = (), empty: str = "no records") -> None:
        """Print what a verb returned: a Done, a Listed, one dataclass or dictionary, or several of one kind.

        `columns` are those of a table, which has the ones that hold a value somewhere; a column `state` shows
        whether a queue is paused. `empty` tells a person that there are no records.
        """
        if isinstance(result, Done):
            self.done(result.sentence, **result.record)
        elif isinstance(result, Nothing):
            self.show((), empty="" if self.as_json else result.sentence())
        elif isinstance(result, Listed):
            self.records(result.records, columns=columns, empty=empty)
            if result.records and not self.as_json:
                sys.stdout.write(result.sentence + "\n")
        elif dataclasses.is_dataclass(result) or isinstance(result, dict):
            self.records([result], columns=columns, is_list=False)
        else:
            self.records(result, columns=columns, empty=empty)

    def records(
        self,
        records: Iterable[Any],
        *,
        columns: Sequence[str] = (),
        empty: str = "no records",
        is_list: bool = True,
    ) -> None:
        """Print dataclasses or dictionaries of one kind; see `show`. A single record may become a block of lines."""
        rows = [record if isinstance(record, dict) else fields(record) for record in records]
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
                [HEADS.get(name, name).replace("_", " ") for name in names],
                [[row[name] for name in names] for row in rows],
                is_list=is_list,
            )
        # Here, and not at the end of the program: `spanmq message peek orders | head` should end in silence.
        sys.stdout.flush()

    def done(self, sentence: str, **record: Any) -> None:
        """Print the result: a sentence, or one record."""
        sys.stdout.write((to_json(record) if self.as_json else sentence) + "\n")
        sys.stdout.flush()


def number_of(number: int, noun: str) -> str:
    """Return a number with its noun: `1 message`, `2 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def state_of(queue: Record) -> str | None:
    """Return whether a queue is paused, a circuit breaker is open or no worker receives; None if none of these."""
    states = ["paused"] if queue.get("is_paused") else []
    if queue.get("breaker_open_until") is not None:
        states.append("breaker open")
    if queue.get("lacks_worker"):
        states.append("no worker")
    return ", ".join(states) or None


def fields(record: Any) -> Record:
    """Return a dataclass's fields, as they are."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]], *, is_list: bool = True) -> None:
    """Print rows under the names of their columns, of a list those that fit into the terminal."""
    cells = [[text_of(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        if sum(widths) + GAP * len(widths) > PIPE_WIDTH or any("\n" in cell for row in cells for cell in row):
            _write_blocks(names, cells)
            return
        for row in ([name.upper() for name in names], *cells):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write((" " * GAP).join(padded).rstrip() + "\n")
        return
    from rich.console import Console

    cells = [[visible(cell) for cell in row] for row in cells]
    console = Console(highlight=False)
    heads = [name.replace(" ", "\n") for name in names]
    columns = list(zip(*cells, strict=True))
    preferred = [
        max(*(len(word) for word in head.split("\n")), *(min(len(cell), LONG_MIN + LONG) for cell in column))
        for head, column in zip(heads, columns, strict=True)
    ]
    needed = [GAP + (LONG_MIN if width > LONG else width) for width in preferred]
    staying = {0, *(index for index, name in enumerate(names) if name in STAYING)}
    shown = fitting(needed, console.width, staying) if is_list else [*range(len(names))]
    has_lines = any("\n" in cell for row in cells for cell in row)
    if has_lines or (not is_list and sum(needed) > console.width):
        _print_blocks(console, names, cells)
        return
    is_numeric = [all(map(_is_number, column)) for column in zip(*rows, strict=True)]
    _print_grid(
        console,
        [heads[index] for index in shown],
        [columns[index] for index in shown],
        numeric=[is_numeric[index] for index in shown],
    )
    if hidden := [name for index, name in enumerate(names) if index not in shown]:
        console.print(f"not shown: {', '.join(hidden)} (a wider terminal, or --json)", style="dim")


def fitting(widths: Sequence[int], room: int, staying: Collection[int]) -> list[int]:
    """Return the indexes of the columns that fit: the last ones leave first, and those that are `staying` never."""
    shown = [*range(len(widths))]
    for index in reversed(range(len(widths))):
        if sum(widths[index] for index in shown) <= room:
            break
        if index not in staying:
            shown.remove(index)
    return shown


def _write_blocks(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write each row as lines of a name and a value, with an empty line between rows."""
    width = max(map(len, names)) + GAP
    for number, row in enumerate(rows):
        if number:
            sys.stdout.write("\n")
        for name, cell in zip(names, row, strict=True):
            text = cell.rstrip("\n").replace("\n", f"\n{' ' * width}")
            sys.stdout.write(f"{name.upper().ljust(width)}{text}\n")


def visible(text: str) -> str:
    """Escape control characters: text of a sender or a handler must not control the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def text_of(value: object) -> str:
    """Write a value for a person."""
    try:
        return _text_of(value)
    except ValueError:  # an integer of more digits than Python writes
        return to_json(value)


def _text_of(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False) if value else "-"
    if isinstance(value, tuple | list):
        return ", ".join(map(text_of, value)) or "-"
    # Not a RawJson, which is its text.
    if dataclasses.is_dataclass(value) and type(value).__str__ is object.__str__:
        parts = {name: part for name, part in fields(value).items() if part not in (None, "")}
        return " ".join(f"{name.replace('_', ' ')} {text_of(part)}" for name, part in parts.items())
    return str(value)


def _print_grid(
    console: "Console", heads: Sequence[str], columns: Sequence[Sequence[str]], *, numeric: Sequence[bool]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head, column, is_number in zip(heads, columns, numeric, strict=True):
        # Only columns that may wrap shrink; their cells are cut, and sentences wrap.
        is_long = max(map(len, column)) > LONG
        table.add_column(head, justify="right" if is_number else "left", no_wrap=not is_long)
    wraps = [head in SENTENCES for head in heads]
    for row in zip(*columns, strict=True):
        # Text, not str: values may contain markup characters.
        table.add_row(
            *(
                Text(cell, no_wrap=not is_sentence, overflow="fold" if is_sentence else "ellipsis")
                for cell, is_sentence in zip(row, wraps, strict=True)
            )
        )
    console.print(table)


def _print_blocks(console: "Console", names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        block = Table.grid(padding=(0, GAP, 0, 0))
        block.add_column(no_wrap=True)
        for name, cell in zip(names, row, strict=True):
            # A traceback is wrapped, a long body is cut.
            has_lines = "\n" in cell
            block.add_row(
                name, Text(cell, no_wrap=not has_lines, overflow="fold" if has_lines else "ellipsis")
            )
        console.print(block)
        console.print()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
