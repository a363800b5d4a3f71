"""What goes to another broker, and what a broker is to the job that sends there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from spanmq.codec.exact_json import dumps, loads
from spanmq.errors import PipelineError

# The name of the header with the queue, which every broker carries.
QUEUE_HEADER: Final = "x-spanmq-queue"
ID_HEADER: Final = "x-spanmq-message-id"
ATTEMPT_HEADER: Final = "x-spanmq-attempt"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way: `body` and `headers` are JSON as text."""

    queue: str
    message_id: int
    body: str | None
    headers: str | None
    group: str | None
    attempt: int
    enqueued_at: datetime

    @property
    def mark(self) -> str:
        """Return a unique id of this message, the same at every delivery of it."""
        return f"{self.queue}:{self.message_id}"

    @property
    def payload(self) -> bytes:
        """Return the body as bytes."""
        return (self.body if self.body is not None else "null").encode()

    def own_headers(self) -> dict[str, Any]:
        """Return the user's headers, their numbers as Number; raises PipelineError for another type."""
        headers = loads(self.headers) if self.headers else {}
        if not isinstance(headers, dict):
            raise self.refusal("its headers are not a JSON object")
        return headers

    def labels(self) -> dict[str, str]:
        """Return all headers as texts, the user's as JSON unless they are texts, and where it came from."""
        texts = {
            name: value if isinstance(value, str) else dumps(value)
            for name, value in self.own_headers().items()
        }
        return {
            **texts,
            QUEUE_HEADER: self.queue,
            ID_HEADER: str(self.message_id),
            ATTEMPT_HEADER: str(self.attempt),
        }

    def refusal(self, reason: str) -> PipelineError:
        """Return the error for a message that a broker does not take."""
        command = f"spanmq receiver reject {self.queue} migrate {self.message_id} --error …"
        return PipelineError(
            f"message {self.mark} can't be sent: {reason}",
            hint=f"`{command}` makes it a dead letter; then run the job again.",
            queue=self.queue,
        )


class Broker(Protocol):
    """Where messages are sent. It goes to the executors: what it holds can be pickled."""

    def check(self) -> None:
        """Raise PipelineError unless messages can be sent: the broker is reachable, and the target exists."""

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these in order, and return when the broker has confirmed each of them.

        Raises PipelineError if it did not; some may have arrived then.
        """

    def describe(self) -> str:
        """Name the target, without credentials."""
