"""A command stops a worker that runs elsewhere, as SIGTERM would."""

from typing import Any

import psycopg
import pytest
from tests.client.concurrency import until
from tests.worker.running import Gate, working

from spanmq import Client
from spanmq.errors import NotFoundError
from spanmq.worker.event import MessageSettled, MessagesReceived, WorkerStopped, WorkerStopping


def test_worker_that_is_asked_to_stop_finishes_what_it_handles(
    client: Client, database: str, observer: psycopg.Connection[Any]
) -> None:
    client.queues.create("others")
    gate, queues = Gate(), ["orders", "others"]
    with working(database, gate, queues=queues, name="w/1", concurrency=1) as record:
        client.send("orders", 1)
        record.wait(MessagesReceived)
        until(observer, "select count(*) = 2 from spanmq.list_workers()")
        with pytest.raises(NotFoundError, match="no worker 'w' is running"):
            client.admin.stop_worker("w")
        assert client.admin.stop_worker("w/1") == 2
        assert record.wait(WorkerStopping)[0].reason == "command"
        assert {each.stop_asked_at is None for each in client.health.workers()} == {False}
        sent = client.send("orders", 2)
        gate.open(1)
        record.wait(WorkerStopped)
    assert [event.outcome for event in record.of(MessageSettled)] == ["acked"]
    assert client.health.workers() == []
    assert [each.message_id for each in client.peek("orders")] == [sent]
