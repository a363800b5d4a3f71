"""The tables of a lake: which columns they have, by which id a row is known, and by which day it is filed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from spanmq.errors import InvalidArgumentError
from spanmq.spark.column import COLUMNS, Column


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table, which has the name of what it is a copy of."""

    name: str
    id: str
    at: str
    columns: tuple[Column, ...]


TABLES: Final = {
    each.name: each
    for each in (
        LakeTable("archive", "message_id", "archived_at", COLUMNS["archive"]),
        # Columns of a lake never change, but a dead letter may be redriven: that column is left out.
        LakeTable(
            "dead_letters",
            "dead_letter_id",
            "dead_at",
            tuple(each for each in COLUMNS["dead_letters"] if each.name != "redriven_at"),
        ),
    )
}
FORMATS: Final = ("parquet", "delta", "iceberg")


def table_named(name: str) -> LakeTable:
    """Return a table; raises InvalidArgumentError, with the nearest name."""
    return TABLES[_known("table", name, tuple(TABLES))]


def check_format(name: str) -> None:
    """Raise InvalidArgumentError, with the nearest name, for a format that there isn't."""
    _known("format", name, FORMATS)


def _known(what: str, name: str, names: tuple[str, ...]) -> str:
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
        raise InvalidArgumentError(f"a lake has no {what} {name!r}", hint=hint)
    return name
