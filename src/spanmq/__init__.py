"""A message queue inside PostgreSQL with PGMQ's interface: a log, and runs of message ids.

The public names are loaded when they are first used, so that the command line starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from spanmq.version import __version__ as __version__

if TYPE_CHECKING:
    from spanmq.client import AsyncClient, AsyncShardedQueue, Client, ShardedQueue
    from spanmq.client.current_handler import cancelled, progress
    from spanmq.client.dsn import Timeouts
    from spanmq.codec.body import RawJson
    from spanmq.errors import SpanmqError
    from spanmq.model import Leased, Message, Settled
    from spanmq.tasks import Tasks
    from spanmq.worker import Reject, RetryAfter, RetryIn, Worker

__all__ = [
    "AsyncClient",
    "AsyncShardedQueue",
    "Client",
    "Leased",
    "Message",
    "RawJson",
    "Reject",
    "RetryAfter",
    "RetryIn",
    "Settled",
    "ShardedQueue",
    "SpanmqError",
    "Tasks",
    "Timeouts",
    "Worker",
    "cancelled",
    "progress",
]

_HOMES = {
    "AsyncClient": "client",
    "AsyncShardedQueue": "client",
    "Client": "client",
    "Leased": "model",
    "Message": "model",
    "RawJson": "codec.body",
    "Reject": "worker",
    "RetryAfter": "worker",
    "RetryIn": "worker",
    "Settled": "model",
    "ShardedQueue": "client",
    "SpanmqError": "errors",
    "Tasks": "tasks",
    "Timeouts": "client",
    "Worker": "worker",
    "cancelled": "client.current_handler",
    "progress": "client.current_handler",
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spanmq' has no attribute '{name}'")
    return getattr(import_module(f"spanmq.{_HOMES[name]}"), name)
