"""Trace spans for the messages of clients and workers, if tracing is enabled; see docs/guides/tracing.md.

No package is imported for it: a traced program has imported OpenTelemetry and configured a tracer provider.
Without that, each function here returns the same object, which does nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from spanmq.codec.batch import EachHeaders
    from spanmq.codec.body import Headers
    from spanmq.model import Message, Settled
    from spanmq.tracing.telemetry import Processing, Receiving, Sending, Serving, Telemetry

__all__ = ["handling"]


class Untraced:
    """Replaces all of them without tracing."""

    __slots__ = ()

    context: Final = None

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def one(self, headers: Headers | None) -> Headers | None:
        """Return the headers unchanged."""
        return headers

    def each(self, headers: EachHeaders) -> EachHeaders:
        """Return the headers unchanged."""
        return headers

    def sent(self, message_id: int) -> int:
        """Return the id."""
        return message_id

    def sent_many(self, count: int) -> None:
        """Do nothing."""

    def received(self, messages: list[Message]) -> list[Message]:
        """Return the messages."""
        return messages

    def note(self, event: str, message: int | None = None, **attributes: str | int | None) -> None:
        """Do nothing."""

    def answered(self, route: str | None, status: int) -> None:
        """Do nothing."""

    def fail(self, error_type: str, text: str) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


UNTRACED: Final = Untraced()

# By provider: a program has one, and tests one each.
_telemetries: Final[WeakKeyDictionary[Any, Telemetry]] = WeakKeyDictionary()


def is_on() -> bool:
    """Return whether a tracer is configured."""
    return _telemetry() is not None


def sending(operation: str, destination: str) -> Sending | Untraced:
    """Trace a block that sends to a queue or a topic."""
    if (telemetry := _telemetry()) is None:
        return UNTRACED
    from spanmq.tracing.telemetry import Sending

    return Sending(telemetry, operation, destination)


def receiving(operation: str, queue: str | None) -> Receiving | Untraced:
    """Trace a block that receives from a queue."""
    if (telemetry := _telemetry()) is None:
        return UNTRACED
    from spanmq.tracing.telemetry import Receiving

    return Receiving(telemetry, operation, queue)


def handling(
    messages: Message | Sequence[Message],
    *,
    earlier: Sequence[Any] = (),
    client_id: str | None = None,
    is_kept_open: bool = False,
) -> Processing | Untraced:
    """Trace a block that handles a message, or some, of one queue; a worker does so by itself.

    The message's trace continues in the block, including messages that it sends. `earlier` are the contexts
    of earlier attempts. Open spans end with `end`, when the outcome of the messages is known.
    """
    if (telemetry := _telemetry()) is None:
        return UNTRACED
    from spanmq.tracing.telemetry import Processing

    listed = messages if isinstance(messages, Sequence) else [messages]
    return Processing(telemetry, listed, earlier, client_id, is_kept_open)


def serving(method: str, path: str, headers: Mapping[str, str]) -> Serving | Untraced:
    """Trace a block that answers a request; another instrumentation's span of it stays the only one."""
    if (telemetry := _telemetry()) is None or telemetry.is_recording():
        return UNTRACED
    from spanmq.tracing.telemetry import Serving

    return Serving(telemetry, method, path, headers)


def settled(operation: str, outcomes: list[Settled]) -> list[Settled]:
    """Record the result of a settling call in the current trace span, if any; return it."""
    telemetry = _telemetry()
    if telemetry is not None:
        telemetry.settled(operation, outcomes)
    return outcomes


def _telemetry() -> Telemetry | None:
    """Return the telemetry; only a dictionary lookup where OpenTelemetry was never imported."""
    api = sys.modules.get("opentelemetry.trace")
    # While another thread imports it, the module exists but is empty.
    provider_of = None if api is None else getattr(api, "get_tracer_provider", None)
    if api is None or provider_of is None:
        return None
    provider = provider_of()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    telemetry = _telemetries.get(provider)
    if telemetry is None:
        from spanmq.tracing.telemetry import Telemetry

        telemetry = _telemetries[provider] = Telemetry(provider)
    return telemetry
