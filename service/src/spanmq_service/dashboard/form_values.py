"""Values that users type into forms of messages: read, or refused with an error for the user."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from spanmq.codec import RawJson, loads
from spanmq.errors import InvalidArgumentError


def body(text: str, name: str = "body") -> RawJson:
    """Read a body, which stays as it was typed: to the last digit."""
    # Numbers of any length: none is converted.
    _json(name, text, loads)
    return RawJson(text)


def json_object(text: str, name: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for an empty field."""
    if not text.strip():
        return None
    parsed = _json(name, text)
    if not isinstance(parsed, dict):
        raise InvalidArgumentError(f"the {name} must be a JSON object")
    return parsed


def number(text: str, name: str) -> float | None:
    """Read a number; None for an empty field."""
    try:
        return float(text) if text.strip() else None
    except ValueError as error:
        raise InvalidArgumentError(f"the {name} must be a number") from error


def moment(text: str, name: str) -> datetime | None:
    """Read a time; without a time zone it is UTC, as times on the pages are. None for an empty field."""
    if not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name} is not a time: {text}") from error


def _json(name: str, text: str, parse: Callable[[str], Any] = json.loads) -> Any:
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the {name} is not valid JSON: {error}") from error
