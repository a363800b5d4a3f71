"""The event loop that a worker's `run` works in, and its tasks."""

import asyncio
import sys

import pytest
from tests.worker.running import working

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


@pytest.mark.parametrize("awaits", [True, False])
def test_handler_that_cancels_its_own_task_only_fails(client: Client, database: str, awaits: bool) -> None:
    client.send_batch("orders", ["cancel", "good"])
    client.queues.set_policy("orders", backoff_base=600, jitter=False)

    async def handle(message: Message) -> None:
        if message.body == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            if awaits:
                await asyncio.sleep(0)

    with working(database, handle, concurrency=1) as record:
        # What it does not await, it does not notice.
        assert sorted(record.outcomes(2)) == ["acked", "retrying" if awaits else "acked"]
