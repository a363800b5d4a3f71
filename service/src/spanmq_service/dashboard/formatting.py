"""Formats of numbers, times and parameters on pages."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

from spanmq.codec import RawJson, to_json
from spanmq.model import duration

NOTHING: Final = "\N{EN DASH}"
SHORT: Final = 160
LONG: Final = 100_000
# Bytes of a body, as stored, that is loaded for a row of a table, and for a page of its own: compression
# may hide a hundred times as much.
ROW_BYTES_MAX: Final = 2_000
PAGE_BYTES_MAX: Final = 200_000
# Replaces a body that was not loaded.
_CUT: Final = re.compile(r'\{"spanmq\.cut": ?(\d+)\}')


def count(value: float | None) -> str:
    """Write a whole number: 1,234,567."""
    return NOTHING if value is None else f"{round(value):,}"


def rate(value: float | None) -> str:
    """Return a rate per second, with three digits if it is small."""
    if value is None:
        return NOTHING
    if value == 0 or value >= 100:
        return f"{round(value):,}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(value: float | None) -> str:
    """Write bytes."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment(value: datetime | None) -> str:
    """Write a time, in UTC."""
    return NOTHING if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def typed_moment(value: str) -> str:
    """Return a time that was typed, as times are written; unchanged if it is not one."""
    try:
        parsed = datetime.fromisoformat(value)
        return moment(parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return value


def since(value: datetime | None) -> str:
    """Write how far a time is from now."""
    if value is None:
        return NOTHING
    seconds = (datetime.now(UTC) - value).total_seconds()
    return f"{duration(seconds)} ago" if seconds >= 0 else f"in {duration(-seconds)}"


def is_past(value: datetime) -> bool:
    """Return whether a time is now or before."""
    return value <= datetime.now(UTC)


def text(value: object) -> str:
    """Write a body or headers as text, one line."""
    if value is None:
        return NOTHING
    if isinstance(value, str):
        return value
    if not isinstance(value, RawJson):
        try:
            return json.dumps(value, ensure_ascii=False, default=str)
        except ValueError:  # an integer of more digits than Python writes
            return to_json(value)
    whole = str(value)
    return whole if (bytes_ := bytes_cut(value)) is None else f"({size(bytes_)}, too large to be shown here)"


def task_of(body: object) -> str | None:
    """Return the task that a body is for; None without one, or if the body was not loaded."""
    if not isinstance(body, RawJson):
        return None
    try:
        parsed = json.loads(str(body))
    except (ValueError, RecursionError):
        return None
    task = parsed.get("task") if isinstance(parsed, dict) else None
    return task if isinstance(task, str) else None


def bytes_cut(value: object) -> int | None:
    """Return the size of a body that was not loaded; None for a loaded one."""
    if not isinstance(value, RawJson):
        return None
    match = _CUT.fullmatch(str(value))
    return None if match is None else int(match[1])


def short(value: object) -> str:
    """Write the beginning of a text."""
    whole = text(value)
    return whole if len(whole) <= SHORT else whole[: SHORT - 1] + "…"


def pretty(value: object) -> str:
    """Write a body or headers over lines, if they are not very long."""
    whole = text(value)
    if bytes_cut(value) is not None:
        return whole
    if len(whole) > LONG:
        return f"{whole[:LONG]}…\n({len(whole):,} characters)"
    if isinstance(value, RawJson | Mapping | list):
        try:
            parsed = json.loads(whole)
            # As PostgreSQL prints it; values that Python would print differently (1.10) stay unchanged.
            if json.dumps(parsed, ensure_ascii=False) == whole:
                return json.dumps(parsed, ensure_ascii=False, indent=2)
        except (ValueError, RecursionError):
            return whole
    return whole


def address(path: str, **query: object) -> str:
    """Return a URL with its query; None and empty values are left out."""
    return full_address(path, **{name: value for name, value in query.items() if value != ""})


def full_address(path: str, **query: object) -> str:
    """Return a URL with its query; None is left out, and an empty value is not."""
    parameters = {name: str(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "full_address": full_address,
    "count": count,
    "rate": rate,
    "duration": duration,
    "size": size,
    "moment": moment,
    "typed_moment": typed_moment,
    "since": since,
    "is_past": is_past,
    "text": text,
    "short": short,
    "pretty": pretty,
    "address": address,
}
