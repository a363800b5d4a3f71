"""Tables: on a terminal within its width, in a pipe columns of full length."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

# Numbers, names and times are shorter and shown in full; longer columns shrink.
LONG: Final = 40
# The minimal width of the remaining column; with less, each row is printed as a block.
LONG_MIN: Final = 16
GAP: Final = 2


def print_table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under the names of their columns."""
    cells = [[text_of(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
        for row in ([name.upper() for name in names], *cells):
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write((" " * GAP).join(padded).rstrip() + "\n")
        return
    from rich.console import Console

    console = Console(highlight=False)
    heads = [name.replace(" ", "\n") for name in names]
    columns = list(zip(*cells, strict=True))
    wanted = [
        max(*(len(word) for word in head.split("\n")), *(min(len(cell), LONG_MIN + LONG) for cell in column))
        for head, column in zip(heads, columns, strict=True)
    ]
    needed = sum(LONG_MIN if width > LONG else width for width in wanted) + GAP * len(names)
    if needed <= console.width:
        _print_grid(
            console, heads, columns, numeric=[all(map(_is_number, v)) for v in zip(*rows, strict=True)]
        )
    else:
        _print_blocks(console, names, cells)


def text_of(value: object) -> str:
    """Write a value for a person."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "-"
    return str(value)


def _print_grid(
    console: "Console", heads: Sequence[str], columns: Sequence[Sequence[str]], *, numeric: Sequence[bool]
) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for head, column, is_number in zip(heads, columns, numeric, strict=True):
        # Only columns that may wrap shrink; their cells are cut rather than wrapped.
        is_long = max(map(len, column)) > LONG
        table.add_column(head, justify="right" if is_number else "left", no_wrap=not is_long)
    for row in zip(*columns, strict=True):
        # Text, not str: values may contain markup characters.
        table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in row))
    console.print(table)


def _print_blocks(console: "Console", names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.text import Text

    width = max(map(len, names))
    for row in rows:
        for name, cell in zip(names, row, strict=True):
            line = Text(f"{name.ljust(width)}  {cell}")
            console.print(line, no_wrap=True, overflow="ellipsis")
        console.print()


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
