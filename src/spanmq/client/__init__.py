"""The client: a method for each SQL function, in namespaces, and nothing that the database could do.

`_async` is the source; tools/generate_sync.py generates `_sync` from it. The public names are loaded when they
are first used: a part of this package may be imported without the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanmq.client._async.client import AsyncClient
    from spanmq.client._async.shards import AsyncShardedQueue
    from spanmq.client._sync.client import Client
    from spanmq.client._sync.shards import ShardedQueue
    from spanmq.client.dsn import Timeouts

__all__ = ["AsyncClient", "AsyncShardedQueue", "Client", "ShardedQueue", "Timeouts"]

_HOMES = {
    "AsyncClient": "_async.client",
    "AsyncShardedQueue": "_async.shards",
    "Client": "_sync.client",
    "ShardedQueue": "_sync.shards",
    "Timeouts": "dsn",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spanmq.client' has no attribute '{name}'")
    return getattr(import_module(f"spanmq.client.{_HOMES[name]}"), name)
