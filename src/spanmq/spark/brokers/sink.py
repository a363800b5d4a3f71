"""What writes a stream into a broker: each task sends its messages, and ends when all are confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from spanmq.spark.brokers.outgoing import Broker, Outgoing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT: Final = "spanmq-broker"
PORTION_BYTES: Final = 16_000_000
# The memory of a message in Python besides its strings, in bytes.
ROW_BYTES: Final = 1_000


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
