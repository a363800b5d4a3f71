"""Typed jobs over the worker: functions that are sent with checked arguments. docs/guides/tasks.md explains them."""

from spanmq.tasks.arguments import GIVEN
from spanmq.tasks.registry import Tasks
from spanmq.tasks.retry import Retry
from spanmq.tasks.sending import BatchCall, SentBatch
from spanmq.tasks.task import BatchResult, Call, Sent, Task
from spanmq.worker.failure import Reject, RetryIn

__all__ = [
    "GIVEN",
    "BatchCall",
    "BatchResult",
    "Call",
    "Reject",
    "Retry",
    "RetryIn",
    "Sent",
    "SentBatch",
    "Task",
    "Tasks",
]
