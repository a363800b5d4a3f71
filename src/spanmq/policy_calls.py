"""The SQL functions of policies: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Rows
from spanmq.errors import InvalidArgumentError


def get_policy(queue: str) -> Call[dict[str, Any]]:
    """Look a policy up."""
    return Call("get_policy", (argument.queue_name("queue", queue),), _settings, queue, native=True)


def set_policy(queue: str, settings: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Change some of its settings."""
    try:
        text = json.dumps(dict(settings), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"the settings of a policy must be JSON: {error}", queue=queue) from error
    arguments = (argument.queue_name("queue", queue), argument.json("settings", text))
    return Call("set_policy", arguments, _settings, queue, native=True)


def _settings(rows: Rows) -> dict[str, Any]:
    settings: dict[str, Any] = json.loads(rows.scalar())
    return settings
