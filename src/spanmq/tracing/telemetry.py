"""OpenTelemetry's trace spans, by its conventions for messaging; imported only where a tracer is."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import time_ns
from types import TracebackType
from typing import Any, Final, Self

from opentelemetry import context, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, Tracer, TracerProvider

from spanmq.codec.batch import EachHeaders
from spanmq.codec.body import Headers
from spanmq.model import Message, Settled
from spanmq.version import __version__

SYSTEM: Final = "spanmq"
MESSAGE_ID: Final = "messaging.message.id"
BATCH: Final = "messaging.batch.message_count"

Attributes = dict[str, str | int]


class Telemetry:
    """One provider's tracer, and what is made with it."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self.tracer = provider.get_tracer("spanmq", __version__)

    @property
    def fields(self) -> set[str]:
        """Return the names of the headers that carry a trace."""
        return propagate.get_global_textmap().fields

    def is_recording(self) -> bool:
        """Return whether a span is open."""
        return trace.get_current_span().is_recording()

    def settled(self, operation: str, outcomes: list[Settled]) -> None:
        """Add an event for each outcome to the trace span that is open."""
        span = trace.get_current_span()
        if not span.is_recording():
            return
        if len(outcomes) == 1:
            [one] = outcomes
            span.add_event(operation, {"spanmq.outcome": one.outcome, MESSAGE_ID: str(one.message_id)})
            return
        for outcome, count in Counter(settlement.outcome for settlement in outcomes).items():
            span.add_event(operation, {"spanmq.outcome": outcome, BATCH: count})

    def carrier(self, headers: Mapping[str, Any] | None) -> dict[str, str]:
        """Return the headers that carry a trace; a sender may have written any JSON there."""
        if not isinstance(headers, Mapping):
            return {}
        return {name: value for name in self.fields if isinstance(value := headers.get(name), str)}

    def origin(self, headers: Mapping[str, Any] | None) -> tuple[Context, SpanContext] | None:
        """Return the context in which a message was created, if its headers contain it."""
        carrier = self.carrier(headers)
        if not carrier:
            return None
        remote = propagate.extract(carrier, Context())
        made_in = trace.get_current_span(remote).get_span_context()
        return (remote, made_in) if made_in.is_valid else None

    def links(self, messages: Iterable[Message]) -> list[Link]:
        """Return a link to the context of each message that has one."""
        origins = ((message, self.origin(message.headers)) for message in messages)
        return [
            Link(origin[1], {MESSAGE_ID: str(message.message_id)}) for message, origin in origins if origin
        ]


class Sending:
    """What sends is the context that its messages carry; a message with a context of its own keeps it."""

    def __init__(self, telemetry: Telemetry, operation: str, destination: str) -> None:
        self._telemetry = telemetry
        self._fields = telemetry.fields
        self._attributes = described("send", operation, destination)
        self._name = f"send {destination}"
        self._carrier: dict[str, str] = {}
        self._span: Span = trace.INVALID_SPAN
        self._token: Any = None

    def __enter__(self) -> Self:
        """Begin."""
        self._span = self._telemetry.tracer.start_span(
            self._name, kind=SpanKind.PRODUCER, attributes=self._attributes
        )
        self._token = context.attach(trace.set_span_in_context(self._span))
        propagate.inject(self._carrier)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        context.detach(self._token)
        if error is not None:
            fail(self._span, error)
        self._span.end()

    def one(self, headers: Headers | None) -> Headers | None:
        """Return the headers with the context, unless they have one."""
        untyped: object = headers
        if not self._carrier or not isinstance(untyped, Mapping | None):
            return headers
        if headers and not self._fields.isdisjoint(headers):
            if (own := self._telemetry.origin(headers)) is not None:
                self._span.add_link(own[1])
            return headers
        return {**(headers or {}), **self._carrier}

    def each(self, headers: EachHeaders) -> EachHeaders:
        """Return the headers of each message with its context."""
        if headers is None or isinstance(headers, Mapping):
            return self.one(headers)
        untyped: object = headers
        return self._all(headers) if isinstance(untyped, Iterable) else headers

    def _all(self, headers: Iterable[Headers | None]) -> Iterator[Headers | None]:
        last: tuple[object, Headers | None] = (self, None)
        for own_headers in headers:
            # One object for many stays one: it is encoded once.
            if own_headers is not last[0]:
                last = (own_headers, self.one(own_headers))
            yield last[1]

    def sent(self, message_id: int) -> int:
        """Record the id."""
        self._span.set_attribute(MESSAGE_ID, str(message_id))
        return message_id

    def sent_many(self, count: int) -> None:
        """Record the number."""
        self._span.set_attribute(BATCH, count)


class Receiving:
    """Begun and ended when it is known what came: it has links from the start, and idle looks leave none."""

    def __init__(self, telemetry: Telemetry, operation: str, queue: str | None) -> None:
        self._telemetry = telemetry
        self._operation = operation
        self._queue = queue
        self._messages: list[Message] = []
        self._began_at = 0

    def __enter__(self) -> Self:
        """Record the time."""
        self._began_at = time_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the error, if any."""
        if error is None and not self._messages:
            return
        span = self._telemetry.tracer.start_span(
            f"receive {self._queue}",
            kind=SpanKind.CONSUMER,
            attributes={
                **described("receive", self._operation, self._queue or ""),
                BATCH: len(self._messages),
            },
            links=self._telemetry.links(self._messages),
            start_time=self._began_at,
        )
        if error is not None:
            fail(span, error)
        span.end()

    def received(self, messages: list[Message]) -> list[Message]:
        """Record the received messages."""
        self._messages = messages
        return messages


class Serving:
    """A request, in the trace that its headers name."""

    def __init__(self, telemetry: Telemetry, method: str, path: str, headers: Mapping[str, str]) -> None:
        self._method = method
        self._span = telemetry.tracer.start_span(
            method,
            propagate.extract(headers),
            SpanKind.SERVER,
            {"http.request.method": method, "url.path": path},
        )
        self._token: Any = None

    def __enter__(self) -> Self:
        """Begin."""
        self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        context.detach(self._token)
        if error is not None:
            fail(self._span, error)
        self._span.end()

    def answered(self, route: str | None, status: int) -> None:
        """Record the route's pattern, if one matched, and the status."""
        self._span.set_attribute("http.response.status_code", status)
        if route is not None:
            self._span.update_name(f"{self._method} {route}")
            self._span.set_attribute("http.route", route)
        if status >= 500:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(Status(StatusCode.ERROR))


class Processing:
    """A single message continues the trace of its sender; several have a trace of their own, with a link
    each.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        messages: Sequence[Message],
        earlier: Sequence[SpanContext],
        client_id: str | None,
        is_kept_open: bool,
    ) -> None:
        first = messages[0]
        origin = telemetry.origin(first.headers) if len(messages) == 1 else None
        attributes = described("process", "process", first.queue)
        if client_id is not None:
            attributes["messaging.client.id"] = client_id
        if len(messages) == 1:
            attributes |= {MESSAGE_ID: str(first.message_id), "spanmq.attempt": first.attempt}
        else:
            attributes[BATCH] = len(messages)
        # Their order is that of the attempts: the message's origin, then the earlier ones.
        self._links = [*telemetry.links(messages), *(Link(attempt) for attempt in earlier)]
        self._tracer: Tracer = telemetry.tracer
        self._name = f"process {first.queue}"
        self._attributes = attributes
        self._parent = None if origin is None else origin[0]
        self._is_kept_open = is_kept_open
        self._has_failed = self._is_ended = False
        self._handled_at: int | None = None
        self._span: Span = trace.INVALID_SPAN
        self._token: Any = None

    @property
    def context(self) -> SpanContext:
        """Return the context to which later attempts link."""
        return self._span.get_span_context()

    def __enter__(self) -> Self:
        """Begin."""
        self._span = self._tracer.start_span(
            self._name,
            context=self._parent,
            kind=SpanKind.CONSUMER,
            attributes=self._attributes,
            links=self._links,
        )
        self._token = context.attach(trace.set_span_in_context(self._span, self._parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Record the time and the error; end the span, unless it is kept open."""
        context.detach(self._token)
        self._handled_at = time_ns()
        if error is not None:
            self._has_failed = True
            fail(self._span, error)
        if not self._is_kept_open:
            self.end()

    def note(self, event: str, message: int | None = None, **attributes: str | int | None) -> None:
        """Add an event; it may come after the end of the block."""
        told: Attributes = {
            f"spanmq.{name}": value for name, value in attributes.items() if value is not None
        }
        if message is not None:
            told[MESSAGE_ID] = str(message)
        self._span.add_event(event, told)

    def fail(self, error_type: str, text: str) -> None:
        """Record a failure."""
        if not self._has_failed:
            self._has_failed = True
            self._span.set_attribute("error.type", error_type)
            self._span.set_status(Status(StatusCode.ERROR, text))

    def end(self) -> None:
        """End, once; its time is that of the block."""
        if not self._is_ended:
            self._is_ended = True
            self._span.end(self._handled_at)


def described(kind: str, operation: str, destination: str) -> Attributes:
    """Return the attributes that every operation has."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.type": kind,
        "messaging.operation.name": operation,
        "messaging.destination.name": destination,
    }


def fail(span: Span, error: BaseException) -> None:
    """Record the error of a failed operation."""
    if span.is_recording():
        name = type(error).__qualname__
        span.record_exception(error)
        span.set_attribute("error.type", name)
        span.set_status(Status(StatusCode.ERROR, f"{name}: {error}"))
