"""Traces of requests to the service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
from opentelemetry.trace import SpanKind
from tests.patience import WAIT_SECONDS
from tests.recorded import FOREIGN, FOREIGN_TRACE, Recorded, context_of, linked

from spanmq.client import Client
from spanmq_service.app import create_app
from spanmq_service.settings import Settings

SECOND = FOREIGN.replace("0af7", "1af7")


@asynccontextmanager
async def serving(dsn: str) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of a service in this process, for its traces are recorded here."""
    app = create_app(Settings(dsn=dsn, with_tokens=False, wait_max=600))
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=WAIT_SECONDS
        ) as http:
            yield http


def run(dsn: str, act: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    async def acting() -> None:
        async with serving(dsn) as http:
            await act(http)

    asyncio.run(acting())


async def until(holds: Callable[[], bool]) -> None:
    for turn in iter(holds, True):  # each turn of the loop another look
        await asyncio.sleep(turn)


async def send(http: httpx.AsyncClient, **headers: str) -> None:
    answer = await http.post("/v1/queues/orders/messages", json={"body": 1}, headers=headers)
    assert answer.status_code == 201, answer.text


def test_trace_of_a_request_goes_on_in_the_message(client: Client, database: str, recorded: Recorded) -> None:
    run(database, lambda http: send(http, traceparent=FOREIGN))
    request, sent = recorded.one("POST /v1/queues/{queue}/messages"), recorded.one("send orders")
    assert request.kind is SpanKind.SERVER
    assert context_of(request).trace_id == FOREIGN_TRACE
    assert sent.parent == context_of(request)
    [message] = client.peek("orders")
    assert message.headers is not None
    assert message.headers["traceparent"].split("-")[1] == FOREIGN.split("-")[1]


def test_span_of_a_request_has_its_route_and_status(
    client: Client, database: str, recorded: Recorded
) -> None:
    async def act(http: httpx.AsyncClient) -> None:
        assert (await http.get("/v1/queues/none/metrics")).status_code == 404
        assert (await http.get("/v1/queues/orders/metrics")).status_code == 200

    run(database, act)
    [missed, found] = recorded.all("GET /v1/queues/{queue}/metrics")
    for request, status in ((missed, 404), (found, 200)):
        assert request.attributes is not None
        assert request.attributes["http.response.status_code"] == status
        assert request.attributes["http.route"] == "/v1/queues/{queue}/metrics"
        assert request.status.is_unset


def test_span_of_another_instrumentation_stays_the_only_one(
    client: Client, database: str, recorded: Recorded
) -> None:
    async def act(http: httpx.AsyncClient) -> None:
        with recorded.tracer.start_as_current_span("other"):
            await send(http)

    run(database, act)
    assert recorded.one("send orders").parent == context_of(recorded.one("other"))


def test_long_poll_stays_in_the_trace_of_its_request(
    client: Client, database: str, recorded: Recorded
) -> None:
    async def act(http: httpx.AsyncClient) -> None:
        async def receive(parent: str) -> None:
            answer = await http.post(
                "/v1/queues/orders/receive", json={"wait": 600}, headers={"traceparent": parent}
            )
            assert len(answer.json()["messages"]) == 1

        waiting = [asyncio.create_task(receive(parent)) for parent in (FOREIGN, SECOND)]
        gate = http._transport.app.state.backend.gate  # type: ignore[attr-defined]
        await asyncio.wait_for(until(lambda: gate.waiting == 2), WAIT_SECONDS)
        client.send_batch("orders", [1, 2])
        await asyncio.gather(*waiting)

    run(database, act)
    requests = recorded.all("POST /v1/queues/{queue}/receive")
    receives = recorded.all("receive orders")
    assert len(receives) == 2
    parents = {receive.parent.span_id for receive in receives if receive.parent is not None}
    assert parents == {context_of(request).span_id for request in requests}
    assert all(linked(receive) for receive in receives)


def test_health_and_metrics_are_not_traced(client: Client, database: str, recorded: Recorded) -> None:
    async def act(http: httpx.AsyncClient) -> None:
        for path in ("/health/live", "/health/ready", "/metrics"):
            assert (await http.get(path)).status_code == 200

    run(database, act)
    assert recorded.exporter.get_finished_spans() == ()
