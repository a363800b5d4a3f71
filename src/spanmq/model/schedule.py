"""Recurring messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A recurring message: its times and its content; `next_at` is None where no time is planned.

    The database knows all its times up to `planned_until`; maintenance plans more. Maintenance pauses it,
    with a `pause_reason`, when the role `made_by` may no longer send to the queue.
    """

    name: str
    queue: str
    cron: str
    time_zone: str
    body: object
    headers: dict[str, Any] | None
    catch_up: bool
    is_paused: bool
    next_at: datetime | None
    last_at: datetime | None
    last_message_id: int | None
    planned_until: datetime
    made_by: str
    pause_reason: str | None
