"""The SQL functions for what workers report: their arguments, and what becomes of rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Seconds, nothing, records


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReport:
    """A worker that runs for a queue, as it reported at `seen_at`.

    It handles up to `slots` messages of all its queues at once, and holds `held` of this one.
    """

    worker: str
    queue: str
    started_at: datetime
    seen_at: datetime
    slots: int
    held: int
    breaker_open_until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKind:
    """How often a kind of task was done and failed, and the seconds that 50 and 95 of 100 took at most."""

    queue: str
    kind: str
    done: int
    failed: int
    p50: float
    p95: float


def report_worker(
    queue: str,
    worker: str,
    running_for: Seconds | None,
    slots: int,
    held: int,
    times: Iterable[Mapping[str, Any]],
) -> Call[None]:
    """Report that a worker runs, or has stopped."""
    arguments = [
        argument.queue_name("queue", queue),
        argument.text("worker", worker),
        argument.integer("slots", slots),
        argument.integer("held", held),
        argument.json("times", json.dumps([dict(each) for each in times])),
    ]
    if running_for is not None:
        arguments.append(argument.seconds("running_for", running_for))
    return nothing("report_worker", queue, *arguments, native=True)


def list_workers(queue: str | None) -> Call[list[WorkerReport]]:
    """List the workers."""
    arguments = () if queue is None else (argument.texts("queues", [queue]),)
    return Call("list_workers", arguments, partial(records, _worker), queue, native=True)


def list_task_kinds(queue: str | None, seconds: Seconds) -> Call[list[TaskKind]]:
    """List the kinds of tasks."""
    arguments = [argument.seconds("seconds", seconds)]
    if queue is not None:
        arguments.append(argument.texts("queues", [queue]))
    return Call("list_task_kinds", tuple(arguments), partial(records, _kind), queue, native=True)


def _worker(row: dict[str, Any]) -> WorkerReport:
    return WorkerReport(**{field.name: row.get(field.name) for field in fields(WorkerReport)})  # type: ignore[arg-type]


def _kind(row: dict[str, Any]) -> TaskKind:
    return TaskKind(**{field.name: row.get(field.name) for field in fields(TaskKind)})  # type: ignore[arg-type]
