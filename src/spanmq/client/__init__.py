"""The client: a method for each SQL function, in namespaces, and nothing that the database could do.

`_async` is the source; tools/generate_sync.py generates `_sync` from it. The public names are loaded when they
are first used: a part of this package may be imported without the others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spanmq.client._async.admin import (
        AsyncAdmin,
        AsyncKeys,
        AsyncNotifications,
        AsyncPipelineRuns,
        AsyncReceivers,
        AsyncTokens,
    )
    from spanmq.client._async.batches import AsyncBatches
    from spanmq.client._async.categories import AsyncCategories
    from spanmq.client._async.client import AsyncClient
    from spanmq.client._async.dead_letters import AsyncDeadLetters
    from spanmq.client._async.grants import AsyncGrants
    from spanmq.client._async.health import AsyncHealth
    from spanmq.client._async.inspect import AsyncInspect
    from spanmq.client._async.queues import AsyncQueues
    from spanmq.client._async.results import AsyncResults
    from spanmq.client._async.schedules import AsyncSchedules
    from spanmq.client._async.shards import AsyncShardedQueue
    from spanmq.client._async.signals import AsyncSignals
    from spanmq.client._async.topics import AsyncSubscriptions, AsyncTopics
    from spanmq.client._sync.admin import Admin, Keys, Notifications, PipelineRuns, Receivers, Tokens
    from spanmq.client._sync.batches import Batches
    from spanmq.client._sync.categories import Categories
    from spanmq.client._sync.client import Client
    from spanmq.client._sync.dead_letters import DeadLetters
    from spanmq.client._sync.grants import Grants
    from spanmq.client._sync.health import Health
    from spanmq.client._sync.inspect import Inspect
    from spanmq.client._sync.queues import Queues
    from spanmq.client._sync.results import Results
    from spanmq.client._sync.schedules import Schedules
    from spanmq.client._sync.shards import ShardedQueue
    from spanmq.client._sync.signals import Signals
    from spanmq.client._sync.topics import Subscriptions, Topics
    from spanmq.client.dsn import Timeouts

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncBatches",
    "AsyncCategories",
    "AsyncClient",
    "AsyncDeadLetters",
    "AsyncGrants",
    "AsyncHealth",
    "AsyncInspect",
    "AsyncKeys",
    "AsyncNotifications",
    "AsyncPipelineRuns",
    "AsyncQueues",
    "AsyncReceivers",
    "AsyncResults",
    "AsyncSchedules",
    "AsyncShardedQueue",
    "AsyncSignals",
    "AsyncSubscriptions",
    "AsyncTokens",
    "AsyncTopics",
    "Batches",
    "Categories",
    "Client",
    "DeadLetters",
    "Grants",
    "Health",
    "Inspect",
    "Keys",
    "Notifications",
    "PipelineRuns",
    "Queues",
    "Receivers",
    "Results",
    "Schedules",
    "ShardedQueue",
    "Signals",
    "Subscriptions",
    "Timeouts",
    "Tokens",
    "Topics",
]

# The modules of the namespaces' classes, in `_sync` and, with Async before their names, in `_async`.
_MODULES = {
    "admin": (
        "Admin",
        "Keys",
        "Notifications",
        "PipelineRuns",
        "Receivers",
        "Tokens",
    ),
    "batches": ("Batches",),
    "categories": ("Categories",),
    "client": ("Client",),
    "dead_letters": ("DeadLetters",),
    "grants": ("Grants",),
    "health": ("Health",),
    "inspect": ("Inspect",),
    "queues": ("Queues",),
    "results": ("Results",),
    "schedules": ("Schedules",),
    "shards": ("ShardedQueue",),
    "signals": ("Signals",),
    "topics": (
        "Subscriptions",
        "Topics",
    ),
}
_HOMES = {
    "Timeouts": "dsn",
    **{name: f"_sync.{module}" for module, names in _MODULES.items() for name in names},
    **{f"Async{name}": f"_async.{module}" for module, names in _MODULES.items() for name in names},
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'spanmq.client' has no attribute '{name}'")
    return getattr(import_module(f"spanmq.client.{_HOMES[name]}"), name)
