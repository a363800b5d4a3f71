"""A message queue inside PostgreSQL with PGMQ's interface: a log, and runs of message ids.

The public names are loaded when they are first used, so that the command line starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanmq.body import RawJson
    from spanmq.client import Client
    from spanmq.client_async import AsyncClient
    from spanmq.errors import SpanmqError
    from spanmq.message import Message, Settled
    from spanmq.shards import ShardedQueue
    from spanmq.shards_async import AsyncShardedQueue
    from spanmq.timeouts import Timeouts
    from spanmq.worker import Reject, RetryIn, Worker

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "AsyncShardedQueue",
    "Client",
    "Message",
    "RawJson",
    "Reject",
    "RetryIn",
    "Settled",
    "ShardedQueue",
    "SpanmqError",
    "Timeouts",
    "Worker",
]

_HOMES = {
    "AsyncClient": "client_async",
    "AsyncShardedQueue": "shards_async",
    "Client": "client",
    "Message": "message",
    "RawJson": "body",
    "Reject": "worker",
    "RetryIn": "worker",
    "Settled": "message",
    "ShardedQueue": "shards",
    "SpanmqError": "errors",
    "Timeouts": "timeouts",
    "Worker": "worker",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spanmq' has no attribute '{name}'")
    return getattr(import_module(f"spanmq.{_HOMES[name]}"), name)
