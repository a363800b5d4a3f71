"""A command stops a worker that runs elsewhere, as SIGTERM would."""

import asyncio

import psycopg
import pytest
from tests.client.concurrency import until
from tests.worker.running import Record, Running

from spanmq import Client, Message, Worker
from spanmq.errors import NotFoundError
from spanmq.worker.event import MessageSettled, MessagesReceived, WorkerStopped, WorkerStopping


def test_worker_that_is_asked_to_stop_finishes_what_it_handles(client: Client, database: str) -> None:
    client.queues.create("others")
    may_end = asyncio.Event()
    loops = []

    async def handle(message: Message) -> None:
        loops.append(asyncio.get_running_loop())
        await may_end.wait()

    record = Record()
    queues = ["orders", "others"]
    worker = Worker(queues, handle, dsn=database, name="w/1", observers=[record], concurrency=1)
    running = Running(worker, record)
    client.send("orders", 1)
    record.wait(MessagesReceived)
    with psycopg.connect(database, autocommit=True) as observer:
        until(observer, "select count(*) = 2 from spanmq.list_workers()")
        with pytest.raises(NotFoundError, match="no worker 'w' is running"):
            client.admin.stop_worker("w")
        assert client.admin.stop_worker("w/1") == 2
        assert record.wait(WorkerStopping)[0].reason == "command"
        assert {each.stop_asked_at is None for each in client.health.workers()} == {False}
        sent = client.send("orders", 2)
        loops[0].call_soon_threadsafe(may_end.set)
        record.wait(WorkerStopped)
        running.join()
        assert [event.outcome for event in record.of(MessageSettled)] == ["acked"]
        assert client.health.workers() == []
        assert [each.message_id for each in client.peek("orders")] == [sent]
