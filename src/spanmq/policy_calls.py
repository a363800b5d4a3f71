"""The SQL functions of policies and categories: their arguments and rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Rows, flag, nothing, records
from spanmq.errors import InvalidArgumentError
from spanmq.message import CategoryPolicy, CategoryRule


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


def classify(error: str | None, error_class: str | None, queue: str | None) -> Call[str]:
    """Ask the rules."""
    arguments = (
        argument.text("error", error),
        argument.text("error_class", error_class),
        _queue(queue),
    )
    return Call("classify", arguments, lambda rows: str(rows.scalar()), queue, native=True)


def set_category_rule(
    name: str, category: str, error: str | None, error_class: str | None, place: int, queue: str | None
) -> Call[None]:
    """Make or change a rule."""
    return nothing(
        "set_category_rule",
        queue,
        argument.text("name", name),
        argument.text("category", category),
        argument.text("error", error),
        argument.text("error_class", error_class),
        argument.integer("place", place),
        _queue(queue),
        native=True,
    )


def drop_category_rule(name: str, queue: str | None) -> Call[bool]:
    """Drop a rule."""
    return Call("drop_category_rule", (argument.text("name", name), _queue(queue)), flag, queue, native=True)


def list_category_rules(queue: str | None) -> Call[list[CategoryRule]]:
    """List rules."""
    return Call("list_category_rules", (_queue(queue),), partial(records, _rule), queue, native=True)


def set_category_policy(
    category: str, settings: Mapping[str, Any] | None, queue: str | None
) -> Call[dict[str, Any]]:
    """Change what a category means."""
    try:
        text = None if settings is None else json.dumps(dict(settings), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"the settings of a category must be JSON: {error}", queue=queue
        ) from error
    arguments = (_queue(queue), argument.text("category", category), argument.json("settings", text))
    return Call("set_category_policy", arguments, _settings, queue, native=True)


def list_category_policies(queue: str | None) -> Call[list[CategoryPolicy]]:
    """List what categories mean."""
    return Call("list_category_policies", (_queue(queue),), partial(records, _policy), queue, native=True)


def _queue(queue: str | None) -> argument.Argument:
    return argument.text("queue", None) if queue is None else argument.queue_name("queue", queue)


def _rule(row: dict[str, Any]) -> CategoryRule:
    return CategoryRule(
        name=row["name"],
        category=row["category"],
        error=row["error"],
        error_class=row["error_class"],
        place=row["place"],
        queue=row["queue_name"],
    )


def _policy(row: dict[str, Any]) -> CategoryPolicy:
    return CategoryPolicy(
        category=row["category"],
        retries=row["retries"],
        max_attempts=row["max_attempts"],
        backoff_base=row["backoff_base"],
        backoff_factor=row["backoff_factor"],
        backoff_max=row["backoff_max"],
        queue=row["queue_name"],
    )
