"""A queue that is sharded over two databases, and what a worker does sooner than it would."""

from collections.abc import Iterator

import pytest
from tests.worker.sharded import opened

from spanmq import ShardedQueue


@pytest.fixture
def orders(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with opened(dsns) as sharded:
        sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
        yield sharded


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq.worker.roster.LOOK_SECONDS", 0.05)


@pytest.fixture
def early_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend leases of which next to nothing is over: none lapses in a test that is held up."""
    monkeypatch.setattr("spanmq.worker.heartbeat.SHARE", 1 / 300)
