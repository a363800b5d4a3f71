"""The SQL functions of recurring messages: their arguments, and what becomes of their rows. No I/O here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

from spanmq import call as argument
from spanmq.body import Codec
from spanmq.call import Call, Rows, Shape, flag, nothing, records
from spanmq.message import Schedule


@dataclass(frozen=True, slots=True)
class Unplanned:
    """A schedule that wants more times."""

    name: str
    cron: str
    time_zone: str
    planned_until: datetime
    plan_from: datetime
    looked_at: datetime


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What is to be planned, and in how many seconds the next time of all is due (None: never)."""

    unplanned: list[Unplanned]
    due_in: float | None


def schedule(
    name: str,
    queue: str,
    cron: str,
    body: str,
    time_zone: str,
    headers: str | None,
    catch_up: bool,
) -> Call[None]:
    """Make or change a schedule."""
    arguments = [
        argument.text("name", name),
        argument.queue_name("queue", queue),
        argument.text("cron", cron),
        argument.json("body", body),
        argument.text("time_zone", time_zone),
        argument.json("headers", headers),
        argument.boolean("catch_up", catch_up),
    ]
    return nothing("schedule", queue, *arguments, native=True)


def unschedule(name: str) -> Call[bool]:
    """End a schedule."""
    return Call("unschedule", (argument.text("name", name),), flag, native=True)


def pause_schedule(name: str) -> Call[None]:
    """Let its times pass."""
    return nothing("pause_schedule", None, argument.text("name", name), native=True)


def resume_schedule(name: str) -> Call[None]:
    """Fire again."""
    return nothing("resume_schedule", None, argument.text("name", name), native=True)


def list_schedules(codec: Codec) -> Call[list[Schedule]]:
    """List them."""
    return Call(
        "list_schedules", (), partial(records, partial(_schedule, codec)), shape=Shape.MESSAGES, native=True
    )


def upcoming_schedules() -> Call[Upcoming]:
    """Look which want times."""
    return Call("upcoming_schedules", (), _upcoming, native=True)


def plan_schedule(
    name: str, planned_until: datetime, times: Iterable[datetime], new_until: datetime
) -> Call[bool]:
    """Add times to one."""
    arguments = (
        argument.text("name", name),
        argument.moment("planned_until", planned_until),
        argument.moments("times", times),
        argument.moment("new_until", new_until),
    )
    return Call("plan_schedule", arguments, flag, native=True)


def _upcoming(rows: Rows) -> Upcoming:
    unplanned, due_in = [], None
    for row in rows.records():
        wait = row.pop("due_in")
        if row["name"] is None:
            due_in = float(wait) if due_in is None else min(due_in, float(wait))
        else:
            unplanned.append(Unplanned(**{field.name: row[field.name] for field in fields(Unplanned)}))
    return Upcoming(unplanned, due_in)


def _schedule(codec: Codec, row: dict[str, Any]) -> Schedule:
    given: dict[str, Any] = {field.name: row.get(field.name) for field in fields(Schedule)}
    given["body"] = codec.of(row["queue"]).decode(row["message"])
    given["headers"] = None if row["headers"] is None else json.loads(row["headers"])
    given["last_message_id"] = row["last_msg_id"]
    return Schedule(**given)
