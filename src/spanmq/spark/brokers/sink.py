"""What writes a stream into a broker: each task sends its messages, and ends when all are confirmed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from spanmq.spark.brokers.outgoing import Broker, Outgoing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORMAT = "spanmq-broker"


class BrokerWriter(DataSourceStreamArrowWriter):
    """Sends each epoch at least once: one that fails or is killed is sent again, with the same marks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        """Send the messages of one task, in the order of their ids: a shuffle has mixed them."""
        rows = [row for batch in iterator for row in batch.to_pylist()]
        if not rows:
            return WriterCommitMessage()
        rows.sort(key=lambda row: row["message_id"])
        self._broker.publish([outgoing(row) for row in rows])
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: the broker has confirmed all."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was sent can't be taken back."""


def outgoing(row: dict[str, Any]) -> Outgoing:
    """Make a message of a row of the source."""
    return Outgoing(**{name: row[name] for name in Outgoing.__slots__})


def sink_of(broker: Broker) -> type[DataSource]:
    """Give a data source to register that sends to this broker."""

    class BrokerSink(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def streamWriter(self, schema: StructType, overwrite: bool) -> BrokerWriter:  # noqa: N802, ARG002
            return BrokerWriter(broker)

    return BrokerSink
