"""Batches of messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch of messages, and the message that is sent when all of them are settled.

    `done`, `dead`, `ended_at` and `message_id` are None until then; `dead` counts dead letters, `done` the rest.
    """

    batch_id: int
    queue: str
    body: object
    headers: dict[str, Any] | None
    total: int
    unsettled: int
    done: int | None
    dead: int | None
    created_at: datetime
    ended_at: datetime | None
    message_id: int | None
