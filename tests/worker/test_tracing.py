"""Traces of who handles messages in a worker."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from tests.recorded import FOREIGN, FOREIGN_TRACE, Recorded, context_of, linked, parent_text, told
from tests.worker.running import Gate, working

from spanmq.client import Client
from spanmq.model import Message
from spanmq.worker import Reject, RetryIn
from spanmq.worker.event import HandlerOverran, MessageSettled
from spanmq.worker.handler import Handler
from spanmq.worker.observing.trace import HandlerTraces


def handler_in_a_thread(message: Message) -> None:
    trace.get_current_span().set_attribute("seen", message.message_id)


async def handler_in_the_loop(message: Message) -> None:
    trace.get_current_span().set_attribute("seen", message.message_id)


def handler_with_connection(message: Message, connection: Any) -> None:
    Client(connection=connection).send("orders", "more", headers={"last": True}, delay=3600)


async def handler_with_async_connection(message: Message, connection: Any) -> None:
    handler_in_a_thread(message)


def attempt_of(span: ReadableSpan) -> int:
    attempt = (span.attributes or {})["spanmq.attempt"]
    assert isinstance(attempt, int)
    return attempt


@pytest.mark.parametrize(
    "handler",
    [handler_in_a_thread, handler_in_the_loop, handler_with_connection, handler_with_async_connection],
)
def test_handler_runs_in_the_trace_of_the_send(
    client: Client, database: str, recorded: Recorded, handler: Any
) -> None:
    with working(database, handler, name="w1", poll_interval=0.05) as record:
        client.send("orders", 1, headers={"traceparent": FOREIGN})
        assert record.outcomes(1) == ["acked"]
    process = recorded.one("process orders")
    assert process.kind is SpanKind.CONSUMER
    assert context_of(process).trace_id == FOREIGN_TRACE
    assert linked(process) == [FOREIGN]
    attributes = dict(process.attributes or {})
    assert attributes.pop("seen", 1) == 1
    assert attributes == {
        "messaging.system": "spanmq",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "orders",
        "messaging.client.id": "w1",
        "messaging.message.id": "1",
        "spanmq.attempt": 1,
    }
    assert told(process, "settled") == [{"spanmq.outcome": "acked", "messaging.message.id": "1"}]
    # Its time is the handler's, whenever that was told.
    assert process.end_time is not None
    assert process.end_time <= process.events[-1].timestamp
    assert linked(recorded.one("receive orders")) == [FOREIGN]


def test_what_a_handler_sends_goes_on_in_the_trace(client: Client, database: str, recorded: Recorded) -> None:
    client.queues.create("invoices")

    def handle(message: Message, connection: Any) -> None:
        Client(connection=connection).send("invoices", 1)

    with working(database, handle) as record:
        client.send("orders", 1, headers={"traceparent": FOREIGN})
        record.wait(MessageSettled)
    send = recorded.one("send invoices")
    assert send.parent == context_of(recorded.one("process orders"))
    assert context_of(send).trace_id == FOREIGN_TRACE


def assert_each_links_to_those_before(recorded: Recorded) -> list[ReadableSpan]:
    """Return three attempts in order, which link to the send and to the attempts before."""
    attempts = sorted(recorded.all("process orders"), key=attempt_of)
    assert [attempt_of(each) for each in attempts] == [1, 2, 3]
    texts = [parent_text(context_of(each)) for each in (recorded.one("send orders"), *attempts)]
    assert [linked(each) for each in attempts] == [texts[:1], texts[:2], texts[:3]]
    return attempts


def test_retry_links_to_the_attempts_before(client: Client, database: str, recorded: Recorded) -> None:
    async def handle(message: Message) -> None:
        if message.attempt < 3:
            raise RetryIn(0, "not yet", category="TRANSIENT")

    with working(database, handle, poll_interval=0.05) as record:
        client.send("orders", 1)
        assert record.outcomes(3) == ["retrying", "retrying", "acked"]
    attempts = assert_each_links_to_those_before(recorded)
    assert {context_of(each).trace_id for each in attempts} == {
        context_of(recorded.one("send orders")).trace_id
    }
    assert [each.status.status_code for each in attempts] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert (attempts[0].attributes or {})["error.type"] == "RetryIn"
    [settled] = told(attempts[0], "settled")
    assert (settled["spanmq.outcome"], settled["spanmq.category"]) == ("retrying", "TRANSIENT")


def test_retry_that_begins_before_its_failure_was_told_links_to_it(
    client: Client, recorded: Recorded
) -> None:
    client.send("orders", 1)
    [first] = client.receive("orders")
    traces = HandlerTraces("w1")
    handler = traces.over(Handler(handler_in_a_thread, "handler", False, False, False))
    attempts = [replace(first, attempt=attempt) for attempt in (1, 2, 3)]
    for each in attempts:
        handler.function(each)
    # Told in another order than they were made.
    for each, outcome in zip(attempts, ("acked", "retrying", "retrying"), strict=True):
        traces.observe(MessageSettled("orders", 1, outcome, 4 - each.attempt, 0.1))
    assert_each_links_to_those_before(recorded)


def test_batch_has_a_trace_of_its_own_with_a_link_to_each(
    client: Client, database: str, recorded: Recorded
) -> None:
    client.send("orders", 1, headers={"traceparent": FOREIGN})
    client.send("orders", 2)
    with working(database, lambda messages: None, in_batches=True, concurrency=1) as record:
        record.wait(MessageSettled, 2)
    process = recorded.one("process orders")
    assert linked(process) == [FOREIGN, parent_text(context_of(recorded.all("send orders")[1]))]
    assert context_of(process).trace_id not in {
        context_of(send).trace_id for send in recorded.all("send orders")
    }
    assert (process.attributes or {})["messaging.batch.message_count"] == 2
    assert {event["messaging.message.id"] for event in told(process, "settled")} == {"1", "2"}


def test_message_that_is_given_up_says_so(client: Client, database: str, recorded: Recorded) -> None:
    def handle(message: Message) -> None:
        raise Reject("no such order")

    with working(database, handle) as record:
        client.send("orders", 1)
        assert record.outcomes(1) == ["dead"]
    process = recorded.one("process orders")
    assert process.status.status_code is StatusCode.ERROR
    [settled] = told(process, "settled")
    assert (settled["spanmq.outcome"], settled["spanmq.category"]) == ("dead", "BUSINESS")


def test_handler_that_overruns_ends_when_it_is_settled(
    client: Client, database: str, recorded: Recorded
) -> None:
    gate = Gate()
    client.queues.set_policy("orders", max_attempts=1)
    with working(database, gate, handler_timeout=0.05, concurrency=1) as record:
        client.send("orders", 1)
        record.wait(HandlerOverran)
        assert record.outcomes(1) == ["dead"]
        process = recorded.one("process orders")
        gate.open(1)
    assert [len(told(process, name)) for name in ("overran", "settled")] == [1, 1]
    assert process.status.status_code is StatusCode.ERROR
    assert recorded.one("process orders") is process


def test_handler_that_is_left_behind_ends_with_its_worker(
    client: Client, database: str, recorded: Recorded
) -> None:
    gate = Gate()
    with working(database, gate, grace=0.01):
        client.send("orders", 1)
        gate.wait_for(1)
    assert told(recorded.one("process orders"), "settled")[0]["spanmq.outcome"] == "released"
    gate.open(1)


def test_without_a_tracer_the_handler_is_called_as_it_is(client: Client, database: str) -> None:
    callers = []

    def handle(message: Message) -> None:
        callers.append(sys._getframe(1).f_code.co_name)

    with working(database, handle) as record:
        client.send("orders", 1)
        record.wait(MessageSettled)
    assert callers == ["_alone"]
