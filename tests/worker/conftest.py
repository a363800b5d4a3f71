"""A queue that is sharded over two databases, and what a worker does sooner than it would."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.histories import checked
from tests.worker.sharded import opened

from spanmq import ShardedQueue


@pytest.fixture(autouse=True)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """Check the history of what each test does to the queue `orders` of the fixture `client`.

    Of those marked `unrecorded` not: in them something is done that no client records.
    """
    is_checked = "client" in request.fixturenames and not request.node.get_closest_marker("unrecorded")
    # Before the recording, and so after it again.
    dsn = request.getfixturevalue("client") and request.getfixturevalue("database") if is_checked else ""
    with checked(dsn, tmp_path / "calls") if is_checked else nullcontext():
        yield


@pytest.fixture
def orders(dsns: dict[str, str]) -> Iterator[ShardedQueue]:
    with opened(dsns) as sharded:
        sharded.create({"orders_0": "here", "orders_1": "there"}, policy={"ordered": True})
        yield sharded


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanmq.worker.receiving.roster.LOOK_SECONDS", 0.05)


@pytest.fixture
def early_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend leases of which next to nothing is over: none lapses in a test that is held up."""
    monkeypatch.setattr("spanmq.worker.settling.heartbeat.SHARE", 1 / 300)
