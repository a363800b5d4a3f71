"""Shards on two databases, and a worker of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tests.worker.running import Record, working

from spanmq import Client, ShardedQueue

GROUPS = [f"order-{number}" for number in range(20)]


@contextmanager
def opened(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with ExitStack() as stack:
        clients = {name: stack.enter_context(Client(dsn, pool_size=3)) for name, dsn in dsns.items()}
        yield ShardedQueue("orders", clients)


def at_work(sharded: Any, handler: Any, **settings: Any) -> AbstractContextManager[Record]:
    return working(None, handler, queues=sharded, **settings)
