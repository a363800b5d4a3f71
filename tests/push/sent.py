"""A message as a worker receives it."""

from datetime import datetime

from spanmq import Message


def message(
    *,
    queue: str = "orders",
    message_id: int = 1,
    group: str | None = None,
    enqueued_at: str = "2026-11-30T00:00:00+00:00",
) -> Message:
    at = datetime.fromisoformat(enqueued_at)
    return Message(
        queue=queue,
        message_id=message_id,
        group=group,
        body=None,
        headers=None,
        attempt=1,
        enqueued_at=at,
        leased_until=at,
    )
