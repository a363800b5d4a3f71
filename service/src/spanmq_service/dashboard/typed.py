"""Values that users type into forms of messages: read, or refused with an error for the user."""

import json
from collections.abc import Callable
from typing import Any

from spanmq.codec import RawJson, loads
from spanmq.errors import InvalidArgumentError


def body(given: str, name: str = "body") -> RawJson:
    """Read a body, which stays as it was typed: to the last digit."""
    # Numbers of any length: none is converted.
    _json(name, given, loads)
    return RawJson(given)


def json_object(given: str, name: str) -> dict[str, Any] | None:
    """Parse a JSON object; None for an empty field."""
    if not given.strip():
        return None
    found = _json(name, given)
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"the {name} must be a JSON object")
    return found


def number(given: str, name: str) -> float | None:
    """Read a number; None for an empty field."""
    try:
        return float(given) if given.strip() else None
    except ValueError as error:
        raise InvalidArgumentError(f"the {name} must be a number") from error


def _json(name: str, given: str, parse: Callable[[str], Any] = json.loads) -> Any:
    try:
        return parse(given)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the {name} is not valid JSON: {error}") from error
