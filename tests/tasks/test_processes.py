"""Tasks in processes of their own: their results and failures, and what ends them."""

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import WAIT_SECONDS, wait_until
from tests.tasks import computing
from tests.tasks.computing import tasks
from tests.tasks.shop import working

from spanmq import Client
from spanmq.client.current_handler import CURRENT_HANDLER
from spanmq.errors import InvalidArgumentError
from spanmq.tasks import GIVEN, Tasks
from spanmq.tasks.processes import Processes
from spanmq.testing import perform, with_resource


@pytest.fixture
def compute(database: str) -> Iterator[Client]:
    tasks.connect(database)
    tasks.create_queues()
    with Client(database) as client:
        yield client
    tasks.close()


async def test_tasks_run_in_processes_and_only_what_fails_ends_with_its_process(compute: Client) -> None:
    async with working(tasks, processes=2) as outcomes:
        first = computing.where.send(1)
        assert [(await outcomes.next()).outcome] == ["acked"]
        result = await first.wait_async(WAIT_SECONDS)
        assert result is not None
        _, process, opened_in, calls = result
        assert process == opened_in != os.getpid()
        assert calls == 1
        computing.fail.send("killed")
        crashed = await outcomes.next()
        assert (crashed.outcome, crashed.error_class) == ("dead", "spanmq.errors.ProcessCrashedError")
        assert crashed.error == "the process of task 'fail' ended: signal SIGKILL"
        for how, error_class in (("reject", "spanmq.worker.failure.Reject"), ("", "ZeroDivisionError")):
            computing.fail.send(how)
            failed = await outcomes.next()
            assert (failed.outcome, failed.error_class) == ("dead", error_class)
        computing.fail.send("object")
        assert (await outcomes.next()).outcome == "acked"
        computing.step.send(7)
        assert await outcomes.all(2) == ["acked"] * 2
        assert compute.queues.metrics("compute").length == 1
        tasks.batch([computing.where.call(number) for number in (5, 3)], computing.gather).send()
        assert await outcomes.all(3) == ["acked"] * 3
        [ended] = compute.batches.list()
        assert ended.message_id is not None
        assert compute.results.get("compute", ended.message_id) == {ended.message_id: [5, 3]}
        assert tasks.signal("go 4", {"a": 1}) == "kept"
        parked = computing.park.send(4)
        assert await outcomes.all(2) == ["acked"] * 2
        [resumed] = compute.results.get("compute", parked.message_id + 1).values()
        assert isinstance(resumed, list)
        assert resumed[:2] == [4, {"a": 1}]
        assert resumed[2] != os.getpid()
        computing.spin.send()
        stopped = await outcomes.next()
        assert (stopped.outcome, stopped.error_class) == ("dead", "TimeoutError")


async def test_running_task_reports_its_progress_and_ends_with_its_process_if_it_is_cancelled(
    compute: Client,
) -> None:
    def reported() -> list[str]:
        return [each.note for report in compute.health.workers() for each in report.progress]

    async with working(tasks, processes=1) as outcomes:
        sent = computing.hang.send()
        await asyncio.to_thread(wait_until, lambda: reported() == ["hang 999"])
        assert compute.cancel("compute", sent.message_id)[0].outcome == "cancelling"
        assert (await outcomes.next()).outcome == "cancelled"


def test_tests_run_them_in_their_own_process(compute: Client) -> None:
    model = computing.Model()
    with with_resource(tasks, model):
        assert perform(computing.where, 5) == [5, os.getpid(), os.getpid(), 1]
    assert model.calls == 1


async def not_plain() -> None: ...


def takes_connection(connection: Any = GIVEN) -> None: ...


def test_what_no_process_can_run_is_refused() -> None:
    own = Tasks("own")

    def local() -> None: ...

    for function in (not_plain, local):
        with pytest.raises(InvalidArgumentError, match="with process=True is"):
            own.task(process=True)(function)
    with pytest.raises(InvalidArgumentError, match="has a concurrency"):
        own.task(process=True, concurrency=2)(test_what_no_process_can_run_is_refused)
    with pytest.raises(InvalidArgumentError, match="takes a transaction"):
        own.task(process=True)(takes_connection)
    own.task(process=True, name="hidden")(test_what_no_process_can_run_is_refused)
    with pytest.raises(InvalidArgumentError, match="another process can't find task 'hidden'"):
        own.worker(dsn="postgresql://nowhere/x")


class Begun:
    """What a call reports its progress to: an event that says that its function runs."""

    is_cancelled = is_over = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.event = asyncio.Event()

    def report(self, share: float, note: str) -> None:
        self._loop.call_soon_threadsafe(self.event.set)


async def test_call_that_is_cancelled_again_and_again_leaves_no_error_that_is_never_retrieved(
    compute: Client,
) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    computing.hang.send()
    [message] = compute.receive("compute")
    processes = Processes()
    for cancels in (1, 2, 3):
        begun = Begun()
        CURRENT_HANDLER.set(begun)
        call = asyncio.create_task(processes.call(computing.hang, message, None))
        await begun.event.wait()
        for _ in range(cancels):
            call.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([call])
        assert call.cancelled()
        del call
    processes.close()
    await asyncio.to_thread(
        wait_until, lambda: not any(each.name == "spanmq task" for each in threading.enumerate())
    )
    await asyncio.sleep(0)  # what the threads have returned
    gc.collect()
    assert complaints == []
