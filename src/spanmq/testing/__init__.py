"""For tests of programs that use spanmq: databases, and tasks that run at once. See docs/guides/testing.md."""

from spanmq.testing.databases import new_database, wait_until_waiting, with_database
from spanmq.testing.tasks import (
    Clock,
    assert_runs,
    assert_sent,
    assert_visible,
    assert_waits,
    drain,
    drain_async,
    perform,
    perform_async,
    record_progress,
    sent,
    with_resource,
)
from spanmq.testing.webhook import PushedMessage, Webhook, webhook

__all__ = [
    "Clock",
    "PushedMessage",
    "Webhook",
    "assert_runs",
    "assert_sent",
    "assert_visible",
    "assert_waits",
    "drain",
    "drain_async",
    "new_database",
    "perform",
    "perform_async",
    "record_progress",
    "sent",
    "wait_until_waiting",
    "webhook",
    "with_database",
    "with_resource",
]
