"""What becomes of the rows of a call. By name only: the next release may add columns anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spanmq.call import Argument, Call, Result, Rows, Shape


def nothing(function: str, queue: str | None, *arguments: Argument, native: bool) -> Call[None]:
    """Call a function that returns nothing."""
    return Call(function, arguments, lambda _: None, queue, Shape.NOTHING, native=native)


def flag(rows: Rows) -> bool:
    """Read a boolean."""
    return bool(rows.scalar())


def number(rows: Rows) -> int:
    """Read a number."""
    return int(rows.scalar())


def numbers(rows: Rows) -> list[int]:
    """Read a column of numbers."""
    return rows.column()


def records(make: Callable[[dict[str, Any]], Result], rows: Rows) -> list[Result]:
    """Make a value of each row."""
    return [make(record) for record in rows.records()]
