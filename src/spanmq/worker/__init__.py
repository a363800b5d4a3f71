"""The worker: receives messages, calls a handler for each, and settles them. See docs/guides/worker.md."""

from spanmq.worker.breaker import BreakerPolicy
from spanmq.worker.failure import Reject, RetryAfter, RetryIn
from spanmq.worker.runtime import Worker
from spanmq.worker.setting import Settings, WorkerOptions, WorkerSettings

__all__ = [
    "BreakerPolicy",
    "Reject",
    "RetryAfter",
    "RetryIn",
    "Settings",
    "Worker",
    "WorkerOptions",
    "WorkerSettings",
]
