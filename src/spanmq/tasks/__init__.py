"""Typed jobs over the worker: functions that are sent with checked arguments. docs/guides/tasks.md explains them."""

from spanmq.model import Result
from spanmq.tasks.arguments import GIVEN
from spanmq.tasks.call import BatchResult, Call
from spanmq.tasks.check import QueuedCalls
from spanmq.tasks.registry import Tasks
from spanmq.tasks.retry import Retry
from spanmq.tasks.sending import BatchCall, Sent, SentBatch
from spanmq.tasks.signals import Signal, Wait
from spanmq.tasks.task import Task
from spanmq.worker.failure import Reject, RetryAfter, RetryIn

__all__ = [
    "GIVEN",
    "BatchCall",
    "BatchResult",
    "Call",
    "QueuedCalls",
    "Reject",
    "Result",
    "Retry",
    "RetryAfter",
    "RetryIn",
    "Sent",
    "SentBatch",
    "Signal",
    "Task",
    "Tasks",
    "Wait",
]
