"""What people type into forms of messages: read, or refused with words for them."""

from __future__ import annotations

import json
from typing import Any

from spanmq.codec.body import RawJson
from spanmq.errors import InvalidArgumentError


def body(given: str, name: str = "body") -> RawJson:
    """Read a body, which stays as it was typed: to the last digit."""
    _json(name, given)
    return RawJson(given)


def headers(given: str) -> dict[str, Any] | None:
    """Parse headers; None without headers."""
    if not given.strip():
        return None
    found = _json("headers", given)
    if not isinstance(found, dict):
        raise InvalidArgumentError("headers are a JSON object")
    return found


def seconds(given: str) -> float:
    """Read a delay; an empty field is none."""
    try:
        return float(given) if given.strip() else 0.0
    except ValueError as error:
        raise InvalidArgumentError("the delay must be a number of seconds") from error


def _json(name: str, given: str) -> Any:
    try:
        return json.loads(given)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"the {name} is no JSON: {error}") from error
