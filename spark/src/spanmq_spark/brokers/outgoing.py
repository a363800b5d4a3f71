"""Messages for another broker, and the interface of a broker."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spanmq.codec import dumps, loads
from spanmq.errors import PipelineError

# The name of the header with the queue, which every broker carries.
QUEUE_HEADER: Final = "x-spanmq-queue"
ID_HEADER: Final = "x-spanmq-message-id"
ATTEMPT_HEADER: Final = "x-spanmq-attempt"
FORMAT: Final = "spanmq-broker"
PORTION_BYTES: Final = 16_000_000
# The memory of a message in Python besides its strings, in bytes.
ROW_BYTES: Final = 1_000


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
    """The destination of messages. It is sent to the executors, so all of its values can be pickled."""

    def check(self) -> None:
        """Raise PipelineError unless messages can be sent: the broker is reachable, and the target exists."""

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Send these in order, and return when the broker has confirmed each of them.

        Raises PipelineError if it did not; some may have arrived then.
        """

    def describe(self) -> str:
        """Name the target, without credentials."""


class BrokerWriter(DataSourceStreamArrowWriter):
    """Sends each epoch at least once: one that fails or is killed is sent again, with the same marks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Send the messages of one task, in the order of their ids: a shuffle has mixed them."""
        batches = list(iterator)
        places = [
            (id_, batch, row)
            for batch in batches
            for row, id_ in enumerate(batch.column("message_id").to_pylist())
        ]
        places.sort(key=lambda place: place[0])
        for portion in portions(outgoing(batch, row) for _, batch, row in places):
            self._broker.publish(portion)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the broker has confirmed all."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was sent can't be taken back."""


def outgoing(batch: pyarrow.RecordBatch, row: int) -> Outgoing:
    """Return a row of the source as a message."""
    return Outgoing(**{name: batch.column(name)[row].as_py() for name in Outgoing.__slots__})


def portions(messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Cut messages into lists of about PORTION_BYTES: so much a task holds beside its input."""
    held: list[Outgoing] = []
    size = 0
    for message in messages:
        held.append(message)
        size += len(message.body or "") + len(message.headers or "") + ROW_BYTES
        if size >= PORTION_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def sink_of(broker: Broker) -> type[DataSource]:
    """Return a data source to register that sends to this broker."""

    class BrokerSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def streamWriter(self, schema: StructType, overwrite: bool) -> BrokerWriter:  # noqa: N802, ARG002
            return BrokerWriter(broker)

    return BrokerSink
