"""A queue that is sharded over two databases."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.worker.sharded import opened

from spanmq import ShardedQueue
from spanmq.testing import new_database, with_database


@pytest.fixture
def dsns(spanmq_server: str, spanmq_template: str) -> Iterator[dict[str, str]]:
    """Two databases, which have as little of each other as two servers."""
    with ExitStack() as stack:
        yield {
            place: with_database(
                spanmq_server, stack.enter_context(new_database(spanmq_server, template=spanmq_template))
            )
            for place in ("here", "there")
        }


@pytest.fixture
def orders(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with opened(dsns) as sharded:
        sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
        yield sharded


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq.worker.roster.LOOK_SECONDS", 0.05)
