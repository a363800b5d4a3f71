"""The SQL functions that tell how queues and the server are: arguments and rows. No I/O here."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Call, Seconds, nothing, records
from spanmq.message import Finding, LatestStatistics, QueueHealth, Sample


def health() -> Call[list[QueueHealth]]:
    """Look at every queue."""
    return Call("health", (), partial(records, _health), native=True)


def statistics(queue: str, seconds: Seconds) -> Call[list[Sample]]:
    """Look back."""
    arguments = (argument.queue_name("queue", queue), argument.seconds("seconds", seconds))
    return Call("statistics", arguments, partial(records, _sample), queue, native=True)


def latest_statistics() -> Call[list[LatestStatistics]]:
    """Look at the last sample of every queue."""
    return Call("latest_statistics", (), partial(records, _latest), native=True)


def report_breaker(queue: str, worker: str, seconds: Seconds | None) -> Call[None]:
    """Report that a worker's circuit breaker is open, or closed."""
    arguments = [argument.queue_name("queue", queue), argument.text("worker", worker)]
    if seconds is not None:
        arguments.append(argument.seconds("seconds", seconds))
    return nothing("report_breaker", queue, *arguments, native=True)


def doctor(connections: int | None) -> Call[list[Finding]]:
    """Look at the server, by the clock of this machine."""
    arguments = [argument.moment("client_at", datetime.now(UTC))]
    if connections is not None:
        arguments.append(argument.integer("connections", connections))
    return Call("doctor", tuple(arguments), partial(records, _finding), native=True)


def _health(record: dict[str, Any]) -> QueueHealth:
    return QueueHealth(
        queue=record["queue"],
        backlog=record["backlog"],
        visible=record["visible"],
        in_flight=record["in_flight"],
        delayed=record["delayed"],
        failed=record["failed"],
        dead=record["dead"],
        dead_per_minute=record["dead_per_minute"],
        oldest_ready_seconds=record["oldest_ready_seconds"],
        oldest_lease_seconds=record["oldest_lease_seconds"],
        receivers=record["receivers"],
        waiting_sessions=record["waiting_sessions"],
        oldest_snapshot_seconds=record["oldest_snapshot_seconds"],
        is_paused=record["is_paused"],
        breaker_open_until=record["breaker_open_until"],
        silent_receivers=record["silent_receivers"],
    )


def _sample(record: dict[str, Any]) -> Sample:
    return Sample(
        sampled_at=record["sampled_at"],
        duration_seconds=record["duration_seconds"],
        sent=record["sent"],
        received=record["received"],
        settled=record["settled"],
        failed=record["failed"],
        dead=record["dead"],
        backlog=record["backlog"],
        visible=record["visible"],
        in_flight=record["in_flight"],
        oldest_ready_seconds=record["oldest_ready_seconds"],
    )


def _latest(record: dict[str, Any]) -> LatestStatistics:
    return LatestStatistics(**{field.name: record[field.name] for field in fields(LatestStatistics)})


def _finding(record: dict[str, Any]) -> Finding:
    return Finding(
        check=record["check_name"], level=record["level"], finding=record["finding"], advice=record["advice"]
    )
