"""What was traced."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, Tracer

# A context that somebody else made.
FOREIGN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
FOREIGN_TRACE = int("0af7651916cd43dd8448eb211c80319c", 16)


@dataclass(frozen=True)
class Recorded:
    """The trace spans that have ended, and a tracer for those of the test's own."""

    exporter: InMemorySpanExporter
    tracer: Tracer

    def all(self, name: str) -> list[ReadableSpan]:
        """Return those of a name, in the order of their ends."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only one of a name."""
        [span] = self.all(name)
        return span


def parent_text(context: SpanContext) -> str:
    """Write a context as `traceparent`."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the context of a span that has one."""
    context = span.get_span_context()
    assert context is not None
    return context


def told(span: ReadableSpan, name: str) -> list[Mapping[str, Any]]:
    """Return the attributes of a span's events of one name."""
    return [event.attributes or {} for event in span.events if event.name == name]


def linked(span: ReadableSpan) -> list[str]:
    """Return what a span links to."""
    return [parent_text(link.context) for link in span.links]
