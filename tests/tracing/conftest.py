"""A tracer as a program configures it, whose trace spans stay in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.tracing.recorded import Recorded

from spanmq.client import Client


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Every trace span that ends within the test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # A program can set its provider once only; each test has another one, and the rest of the tests none.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield Recorded(exporter, trace.get_tracer("test"))
    provider.shutdown()


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    """A client of a new database with an empty queue `orders`."""
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client
