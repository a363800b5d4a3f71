"""A process whose start takes long: the time limit of its task has not begun."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.tasks import computing, starting
from tests.tasks.shop import working


@pytest.mark.parametrize("place", ["import", "adapter", "validator", "context", "resource", "result"])
async def test_time_limit_begins_with_the_function_and_not_with_the_start_of_its_process(
    place: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    monkeypatch.setenv(starting.HELD, f"{place} {pipe}")
    for tasks in (starting.tasks, computing.tasks):
        tasks.connect(database)
        tasks.create_queues()
    async with working(starting.tasks, processes=1) as started, working(computing.tasks) as clock:
        starting.add.send(1, 2)
        # Returns when the process is held up.
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        # It begins later and has the same time limit, after which both would be over.
        computing.spin.send()
        ended = await clock.next()
        assert (ended.error_class, ended.outcome) == ("TimeoutError", "dead")
        os.close(writer)
        assert (await started.next()).outcome == "acked"
    starting.tasks.close()
    computing.tasks.close()
