"""The SQL functions that look into queues: arguments and rows. No I/O here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.call import Argument, Call, Seconds, records
from spanmq.errors import InvalidArgumentError
from spanmq.queue_part import Glance, Group, HeldLease, Segment, StatisticsStep


def glance(queues: Iterable[str] | None, most: int) -> Call[list[Glance]]:
    """Count what is small."""
    arguments = (*_queues(queues), argument.integer("most", most))
    return Call("glance", arguments, partial(records, _glance), native=True)


def list_leases(queue: str, quantity: int) -> Call[list[HeldLease]]:
    """List what receivers hold."""
    return Call("list_leases", _some_of(queue, quantity), partial(records, _lease), queue, native=True)


def list_groups(queue: str, quantity: int) -> Call[list[Group]]:
    """List groups and what they wait for."""
    return Call("list_groups", _some_of(queue, quantity), partial(records, _group), queue, native=True)


def list_segments(queue: str, quantity: int) -> Call[list[Segment]]:
    """List the tables of a log."""
    return Call("list_segments", _some_of(queue, quantity), partial(records, _segment), queue, native=True)


def sum_statistics(
    queues: Iterable[str] | None, seconds: Seconds, step: Seconds
) -> Call[list[StatisticsStep]]:
    """Add samples up."""
    arguments = (*_queues(queues), argument.seconds("seconds", seconds), argument.seconds("step", step))
    return Call("sum_statistics", arguments, partial(records, _step), native=True)


def _queues(queues: Iterable[str] | None) -> tuple[Argument, ...]:
    if isinstance(queues, str):
        raise InvalidArgumentError("queues are a list of names, not one name")
    return () if queues is None else (argument.texts("queues", queues),)


def _some_of(queue: str, quantity: int) -> tuple[Argument, ...]:
    return (argument.queue_name("queue", queue), argument.integer("qty", quantity))


def _glance(row: dict[str, Any]) -> Glance:
    return Glance(**{field.name: row[field.name] for field in fields(Glance)})


def _lease(row: dict[str, Any]) -> HeldLease:
    return HeldLease(**{field.name: row[field.name] for field in fields(HeldLease)})


def _group(row: dict[str, Any]) -> Group:
    named = row | {"group": row["group_key"]}
    return Group(**{field.name: named[field.name] for field in fields(Group)})


def _segment(row: dict[str, Any]) -> Segment:
    return Segment(**{field.name: row[field.name] for field in fields(Segment)})


def _step(row: dict[str, Any]) -> StatisticsStep:
    return StatisticsStep(**{field.name: row[field.name] for field in fields(StatisticsStep)})
