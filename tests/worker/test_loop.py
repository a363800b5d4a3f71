"""The event loop that a worker's `run` works in."""

import asyncio
import sys

import pytest

from spanmq import Client, Message, Worker


@pytest.mark.parametrize("is_installed", [True, False])
def test_run_works_in_uvloop_where_it_is_installed(
    database: str, client: Client, monkeypatch: pytest.MonkeyPatch, is_installed: bool
) -> None:
    if is_installed:
        pytest.importorskip("uvloop", reason="the extra `fast` is not installed")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)
    found = []

    async def handle(_: Message) -> None:
        found.append(type(asyncio.get_running_loop()).__module__.partition(".")[0])
        worker.stop()

    worker = Worker("orders", handle, dsn=database)
    client.send("orders", 1)
    worker.run()
    assert found == ["uvloop" if is_installed else "asyncio"]
    assert client.queues.metrics("orders").length == 0
