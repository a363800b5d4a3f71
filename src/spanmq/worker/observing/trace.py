"""Trace spans of handlers: started before each call, ended when the outcome of its messages is known."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spanmq import tracing
from spanmq.model import Message
from spanmq.worker.event import Event, HandlerOverran, MessageSettled, WorkerStopped
from spanmq.worker.handler import Handler

if TYPE_CHECKING:
    from spanmq.tracing import Untraced
    from spanmq.tracing.telemetry import Processing

# The number of messages whose earlier attempts are remembered: the next trace span of a message links to
# them.
EARLIER_MAX: Final = 10_000
ATTEMPTS_MAX: Final = 16

Key = tuple[str, int, int]


@dataclass(slots=True)
class _Open:
    """A call of the handler, and the number of its messages without an outcome."""

    handling: Processing | Untraced
    untold: int


class HandlerTraces:
    """Wraps a handler, and observes its worker.

    It knows the earlier attempts in this worker; other attempts belong to the same trace, that of the sender.
    """

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[Key, _Open] = {}
        # For each message the attempts that will be retried, and their contexts.
        self._earlier: OrderedDict[tuple[str, int], dict[int, Any]] = OrderedDict()

    def over(self, handler: Handler) -> Handler:
        """Return the handler with a trace span around each call."""
        function = handler.function

        async def handle(delivered: Any, *connection: Any) -> Any:
            with self._begin(delivered):
                return await function(delivered, *connection)

        def handle_in_thread(delivered: Any, *connection: Any) -> Any:
            with self._begin(delivered):
                return function(delivered, *connection)

        return replace(handler, function=handle if handler.is_async else handle_in_thread)

    def observe(self, event: Event) -> None:
        """Record the outcomes of messages in their trace spans."""
        if isinstance(event, MessageSettled):
            self._settled(event)
        elif isinstance(event, HandlerOverran):
            opened = self._open.get((event.queue, event.message_id, event.attempt))
            if opened is not None:
                opened.handling.note("overran", event.message_id)
        elif isinstance(event, WorkerStopped):
            # The outcomes of these will not be known.
            for opened in [*self._open.values()]:
                opened.handling.end()
            self._open.clear()

    def _begin(self, delivered: Message | list[Message]) -> Processing | Untraced:
        messages = delivered if isinstance(delivered, list) else [delivered]
        handling = tracing.handling(
            messages, earlier=self._known(messages), client_id=self._worker, is_kept_open=True
        )
        opened = _Open(handling, len(messages))
        for message in messages:
            key = (message.queue, message.message_id, message.attempt)
            # A released message is delivered again with the same attempt number, perhaps before the event.
            before = self._open.get(key)
            if before is not None:
                before.handling.end()
            self._open[key] = opened
        return handling

    def _known(self, messages: Sequence[Message]) -> list[Any]:
        return [context for message in messages if message.attempt > 1 for context in self._attempts(message)]

    def _attempts(self, message: Message) -> list[Any]:
        """Return the contexts of a message's earlier attempts, the first one first."""
        known = dict(self._earlier.get((message.queue, message.message_id), {}))
        # A retry without delay may be delivered before the event of its settlement.
        for attempt in range(max(1, message.attempt - ATTEMPTS_MAX), message.attempt):
            opened = self._open.get((message.queue, message.message_id, attempt))
            if opened is not None:
                known[attempt] = opened.handling.context
        return [known[attempt] for attempt in sorted(known)]

    def _settled(self, event: MessageSettled) -> None:
        opened = self._open.pop((event.queue, event.message_id, event.attempt), None)
        if opened is None:  # no handler had begun it
            return
        handling = opened.handling
        handling.note("settled", event.message_id, outcome=event.outcome, category=event.category)
        if event.error is not None:
            handling.fail(event.category or event.outcome, event.error)
        self._remember(event, handling)
        opened.untold -= 1
        if not opened.untold:
            handling.end()

    def _remember(self, event: MessageSettled, handling: Processing | Untraced) -> None:
        key = (event.queue, event.message_id)
        if event.outcome != "retrying":
            self._earlier.pop(key, None)
            return
        known = self._earlier.setdefault(key, {})
        known[event.attempt] = handling.context
        if len(known) > ATTEMPTS_MAX:
            del known[min(known)]
        self._earlier.move_to_end(key)
        if len(self._earlier) > EARLIER_MAX:
            self._earlier.popitem(last=False)
