"""Traces of who sends and receives by a client."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from tests.recorded import FOREIGN, FOREIGN_TRACE, Recorded, context_of, linked, parent_text, told

from spanmq import tracing
from spanmq.client import AsyncClient, Client
from spanmq.errors import InvalidArgumentError, InvalidBodyError, QueueNotFoundError
from spanmq.model import Message


def headers_of(client: Client) -> list[dict[str, Any] | None]:
    return [message.headers for message in client.peek("orders", 5_000)]


def test_message_carries_the_trace_of_its_send(client: Client, recorded: Recorded) -> None:
    with recorded.tracer.start_as_current_span("shop") as shop:
        message_id = client.send("orders", {"order": 17}, headers={"tenant": "a"}, group="g")
    send = recorded.one("send orders")
    assert send.kind is SpanKind.PRODUCER
    assert send.parent == shop.get_span_context()
    assert dict(send.attributes or {}) == {
        "messaging.system": "spanmq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "orders",
        "messaging.message.id": str(message_id),
    }
    carried = {"traceparent": parent_text(context_of(send)), "tenant": "a", "x-pgmq-group": "g"}
    assert headers_of(client) == [carried]


def test_own_context_of_a_message_is_kept_and_linked(client: Client, recorded: Recorded) -> None:
    client.send("orders", 1, headers={"traceparent": FOREIGN})
    assert headers_of(client) == [{"traceparent": FOREIGN}]
    assert linked(recorded.one("send orders")) == [FOREIGN]


@pytest.mark.parametrize("mine", [{"traceparent": 5}, {"traceparent": "?"}, {"tracestate": ["a"]}])
def test_header_that_is_no_context_is_left_alone(
    client: Client, recorded: Recorded, mine: dict[str, Any]
) -> None:
    client.send("orders", 1, headers=mine)
    [message] = client.receive("orders")
    assert message.headers == mine
    assert linked(recorded.one("receive orders")) == []


@pytest.mark.parametrize("headers", ["[1]", '"x"', "5"])
def test_headers_that_are_not_an_object_do_not_stop_a_receiver(
    client: Client, database: str, recorded: Recorded, headers: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for body in ("1", "2"):
            connection.execute("select pgmq.send('orders', %s::jsonb, %s::jsonb)", [body, headers])
    assert [message.body for message in client.receive("orders")] == [1]
    assert [message.body for message in client.pop("orders")] == [2]
    assert [linked(span) for span in recorded.all("receive orders")] == [[], []]


@pytest.mark.parametrize("count", [3, 2_500], ids=["by call", "by copy"])
def test_messages_of_a_batch_carry_it(client: Client, recorded: Recorded, count: int) -> None:
    own: list[dict[str, Any] | None] = [{"traceparent": FOREIGN}, None, {"tenant": "a"}]
    client.send_batch("orders", range(count), headers=(own[number % 3] for number in range(count)))
    send = recorded.one("send orders")
    assert (send.attributes or {})["messaging.batch.message_count"] == count
    parent = parent_text(context_of(send))
    expected = [{"traceparent": FOREIGN}, {"traceparent": parent}, {"traceparent": parent, "tenant": "a"}]
    assert headers_of(client) == [expected[number % 3] for number in range(count)]


def test_send_to_a_topic_notes_the_number_of_messages(client: Client, recorded: Recorded) -> None:
    client.queues.create("copies")
    for queue in ("orders", "copies"):
        client.topics.bind("order.*", queue)
    client.topics.send("order.new", 1)
    client.topics.send_batch("order.new", [1])
    sends = recorded.all("send order.new")
    assert [(send.attributes or {}).get("messaging.batch.message_count") for send in sends] == [2, 2]


def test_headers_for_all_of_a_batch_carry_it(client: Client, recorded: Recorded) -> None:
    client.send_batch("orders", [1, 2])
    client.send_batch("orders", [3], headers={"tenant": "a"}, dedup_ids=["x"])
    first, second = (parent_text(context_of(span)) for span in recorded.all("send orders"))
    assert headers_of(client) == [{"traceparent": first}] * 2 + [{"traceparent": second, "tenant": "a"}]


@pytest.mark.parametrize("headers", [5, [5], "text"])
def test_bad_headers_are_refused_as_without_a_trace(client: Client, recorded: Recorded, headers: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="headers must be"):
        client.send_batch("orders", [1], headers=headers)
    send = recorded.one("send orders")
    assert (send.attributes or {})["error.type"] == "InvalidArgumentError"


def test_topics_carry_it(client: Client, recorded: Recorded) -> None:
    client.topics.bind("shop.*", "orders")
    client.topics.send("shop.new", 1)
    client.topics.send_batch("shop.new", [2])
    parents = [parent_text(context_of(span)) for span in recorded.all("send shop.new")]
    assert headers_of(client) == [{"traceparent": parent} for parent in parents]


def test_context_that_is_not_sampled_travels_as_such(client: Client, recorded: Recorded) -> None:
    unsampled = trace.SpanContext(1, 2, is_remote=True)
    with trace.use_span(trace.NonRecordingSpan(unsampled)):
        client.send("orders", 1)
    assert recorded.exporter.get_finished_spans() == ()
    [headers] = headers_of(client)
    assert headers is not None
    assert headers["traceparent"].startswith(f"00-{1:032x}-")
    assert headers["traceparent"].endswith("-00")


def test_failed_send_says_so(client: Client, recorded: Recorded) -> None:
    with pytest.raises(InvalidBodyError):
        client.send("orders", float("nan"))
    with pytest.raises(QueueNotFoundError):
        client.send("none", 1)
    for name, kind in (("send orders", "InvalidBodyError"), ("send none", "QueueNotFoundError")):
        send = recorded.one(name)
        assert send.status.status_code is StatusCode.ERROR
        assert (send.attributes or {})["error.type"] == kind
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_receive_links_to_the_send_of_each_message(client: Client, recorded: Recorded) -> None:
    client.send("orders", 1)
    client.send("orders", 2, headers={"traceparent": FOREIGN})
    client.receive("orders", 10)
    receive, first = recorded.one("receive orders"), recorded.all("send orders")[0]
    assert receive.kind is SpanKind.CONSUMER
    assert linked(receive) == [parent_text(context_of(first)), FOREIGN]
    assert [dict(link.attributes or {}) for link in receive.links] == [
        {"messaging.message.id": "1"},
        {"messaging.message.id": "2"},
    ]
    attributes = receive.attributes or {}
    assert attributes["messaging.operation.type"] == "receive"
    assert attributes["messaging.batch.message_count"] == 2


def test_look_that_finds_nothing_is_not_traced(client: Client, recorded: Recorded) -> None:
    client.receive("orders")
    client.receive("orders", wait=0.01)
    client.read("orders")
    client.pop("orders")
    assert recorded.exporter.get_finished_spans() == ()
    with pytest.raises(QueueNotFoundError):
        client.receive("none")
    assert (recorded.one("receive none").attributes or {})["error.type"] == "QueueNotFoundError"


@pytest.mark.parametrize(
    ("function", "read"),
    [
        ("read", lambda client: client.read("orders")),
        ("pop", lambda client: client.pop("orders")),
        ("read_grouped", lambda client: client.read("orders", grouped="fill")),
        ("read_grouped_rr", lambda client: client.read("orders", grouped="round_robin")),
        ("read_grouped_head", lambda client: client.read("orders", grouped="head")),
    ],
)
def test_all_that_takes_is_traced(
    client: Client, recorded: Recorded, function: str, read: Callable[[Client], list[Message]]
) -> None:
    client.send("orders", 1, group="g")
    assert len(read(client)) == 1
    assert (recorded.one("receive orders").attributes or {})["messaging.operation.name"] == function


def test_handling_goes_on_in_the_trace_of_the_send(client: Client, recorded: Recorded) -> None:
    client.queues.create("invoices")
    client.send("orders", 1, headers={"traceparent": FOREIGN, "baggage": "tenant=a"})
    [message] = client.receive("orders")
    with tracing.handling(message):
        client.send("invoices", 1)
        client.ack(message)
    process, send = recorded.one("process orders"), recorded.one("send invoices")
    assert process.kind is SpanKind.CONSUMER
    assert context_of(process).trace_id == context_of(send).trace_id == FOREIGN_TRACE
    assert linked(process) == [FOREIGN]
    assert send.parent == context_of(process)
    assert told(process, "ack") == [{"spanmq.outcome": "acked", "messaging.message.id": "1"}]
    [invoice] = client.peek("invoices")
    assert invoice.headers is not None
    assert invoice.headers["baggage"] == "tenant=a"


def test_settling_many_is_an_event_for_each_outcome(client: Client, recorded: Recorded) -> None:
    client.send_batch("orders", [1, 2, 3])
    held = client.receive("orders", 3)
    client.delete("orders", 2)
    with recorded.tracer.start_as_current_span("shop"):
        client.nack(held, "no", retry_in=0)
    events = told(recorded.one("shop"), "nack")
    counts = {event["spanmq.outcome"]: event["messaging.batch.message_count"] for event in events}
    assert counts == {"retrying": 2, "stale": 1}


def test_failing_handler_says_so(client: Client, recorded: Recorded) -> None:
    client.send("orders", 1)
    [message] = client.receive("orders")
    with pytest.raises(KeyError), tracing.handling([message]):
        raise KeyError("nobody")
    process = recorded.one("process orders")
    assert process.status.status_code is StatusCode.ERROR
    assert (process.attributes or {})["error.type"] == "KeyError"


def test_asynchronous_client_does_the_same(client: Client, database: str, recorded: Recorded) -> None:
    async def run() -> None:
        async with AsyncClient(database) as other:
            await other.send("orders", 1)
            [message] = await other.receive("orders", wait=1)
            with tracing.handling(message):
                await other.ack(message)

    asyncio.run(run())
    send, process = recorded.one("send orders"), recorded.one("process orders")
    assert linked(recorded.one("receive orders")) == linked(process) == [parent_text(context_of(send))]
    assert [event["spanmq.outcome"] for event in told(process, "ack")] == ["acked"]


def test_send_within_a_transaction_of_yours_carries_it(
    client: Client, database: str, recorded: Recorded
) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    with Session(engine) as session, session.begin():
        Client(connection=session).send("orders", 1)
    engine.dispose()
    with psycopg.connect(database) as connection:
        Client(connection=connection).send("orders", 2)
    parents = [parent_text(context_of(span)) for span in recorded.all("send orders")]
    assert headers_of(client) == [{"traceparent": parent} for parent in parents]


def test_without_a_tracer_nothing_is_done(client: Client) -> None:
    message_id = client.send("orders", 1)
    assert headers_of(client) == [None]
    [message] = client.receive("orders")
    assert message.message_id == message_id
    blocks = tracing.sending("send", "orders"), tracing.receiving("receive", "orders")
    assert [*blocks, tracing.handling(message)] == [tracing.UNTRACED] * 3


def test_nothing_is_imported_for_it(client: Client, database: str) -> None:
    program = """
import sys
from spanmq import Client
with Client(sys.argv[1]) as client:
    client.send("orders", 1)
    client.ack(client.receive("orders"))
print([name for name in sys.modules if name.startswith(("opentelemetry", "spanmq.tracing.telemetry"))])
"""
    command = [sys.executable, "-c", program, database]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
