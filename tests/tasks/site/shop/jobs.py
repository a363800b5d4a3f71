"""Its tasks by Django's own framework."""

from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any

FRAMEWORK = "django.tasks" if find_spec("django.tasks") else "django_tasks"
added: list[Any] = []
# What JSON or PostgreSQL can't hold; text it can.
RETURNED: dict[str, Any] = {
    "NUL": "a\0b",
    "key with NUL": {"k\0": 1},
    "surrogate": "\ud800",
    "NaN": float("nan"),
    "date": datetime.now(UTC),
    "set": {1},
    "keys": {1: 2},
}


@import_module(FRAMEWORK).task(queue_name="orders", takes_context=True)  # type: ignore[untyped-decorator]
def add(context: Any, number: int, *, more: int = 0) -> dict[str, int]:
    added.append((context.task_result.status.name, context.attempt, number + more))
    if number < 0:
        raise ValueError("a number below 0")
    return {"sum": number + more}


@import_module(FRAMEWORK).task(queue_name="mail")  # type: ignore[untyped-decorator]
def notify() -> None:
    raise AssertionError("a message of another queue runs it")


@import_module(FRAMEWORK).task(queue_name="orders")  # type: ignore[untyped-decorator]
def returned(kind: str) -> Any:
    return RETURNED.get(kind, kind)
