"""Shards on two databases, and a worker of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.worker.running import Record, working

from spanmq import Client, ShardedQueue
from spanmq.worker.event import MessageSettled

GROUPS = [f"order-{number}" for number in range(20)]


@contextmanager
def opened(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with ExitStack() as stack:
        clients = {name: stack.enter_context(Client(dsn, pool_size=3)) for name, dsn in dsns.items()}
        yield ShardedQueue("orders", clients)


def acked(record: Record, count: int) -> list[MessageSettled]:
    return record.wait(MessageSettled, count, where=lambda event: event.outcome == "acked")


@contextmanager
def at_work(sharded: Any, handler: Any, **settings: Any) -> Iterator[Record]:
    with working(None, handler, queues=sharded, **settings) as record:
        yield record
