"""What a worker of tasks reports to the database."""

import asyncio
import threading
from math import nan
from typing import Any

import pytest
from tests.patience import WAIT_SECONDS, wait_until
from tests.tasks import shop
from tests.tasks.shop import working

import spanmq
from spanmq import Client
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import Tasks
from spanmq.testing import drain, record_progress
from spanmq.worker.observing import reporting


async def test_worker_reports_itself_and_its_kinds_of_tasks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "LAST_SECONDS", WAIT_SECONDS)
    # What is refused does not come again within the test.
    client.queues.set_policy("orders", backoff_base=600, jitter=False)
    async with working(name="packer", concurrency=3) as outcomes:
        shop.mail.send("ada@shop")
        shop.fail.send("reject")
        client.send("orders", {"task": "unheard of"})
        assert await outcomes.all(3) == ["acked", "dead", "retrying"]
    assert client.health.workers() == []
    kinds = {each.kind: (each.queue, each.done, each.failed) for each in client.health.task_kinds()}
    assert kinds == {"mail": ("mail", 1, 0), "fail": ("orders", 0, 1)}
    [kind] = client.health.task_kinds("mail")
    assert 0 < kind.p50 == kind.p95 < 60


async def test_running_tasks_report_their_progress(
    client: Client, own: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is seen sooner was reported for the progress.
    monkeypatch.setattr(reporting, "REPORT_SECONDS", 3_600.0)
    ending = threading.Event()

    @own.task
    async def copy(pages: int) -> None:
        for page in range(pages):
            spanmq.progress(page / pages, f"page {page}")
        await asyncio.to_thread(ending.wait, WAIT_SECONDS)

    @own.task
    def copy_plain() -> None:
        spanmq.progress(1)
        ending.wait(WAIT_SECONDS)

    def seen() -> list[tuple[int, str | None, float, str]]:
        reports = client.health.workers()
        return sorted((e.message_id, e.task, e.share, e.note) for each in reports for e in each.progress)

    async with working(own) as outcomes:
        ids = [copy.send(4).message_id, copy_plain.send().message_id]
        expected = [(ids[0], "copy", 0.75, "page 3"), (ids[1], "copy_plain", 1.0, "")]
        await asyncio.to_thread(wait_until, lambda: seen() == expected)
        ending.set()
        assert await outcomes.all(2) == ["acked"] * 2
        await asyncio.to_thread(wait_until, lambda: seen() == [])
    with record_progress() as reported:
        copy.send(2)
        drain_in_thread = asyncio.to_thread(drain, own)
        assert await drain_in_thread == 1
    assert reported == [(0.0, "page 0"), (0.5, "page 1")]


@pytest.mark.parametrize(
    "arguments",
    [(-0.1,), (1.1,), (nan,), (True,), ("0.5",), (0.5, 7), (0.5, "x" * 201), (0.5, "\0"), (0.5, "\ud800")],
)
def test_what_is_not_a_progress(arguments: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="progress"):
        spanmq.progress(*arguments)
