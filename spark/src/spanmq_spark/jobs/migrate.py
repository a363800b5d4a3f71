"""migrate: moves the messages of a queue to another broker, until it is empty, or continuously.

An ordinary stream: messages that the broker has confirmed are settled when the checkpoint contains them.
After a kill, the next run sends the current batch again, with the same marks, and continues.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from spanmq.errors import InvalidArgumentError
from spanmq_spark import rows
from spanmq_spark.brokers.outgoing import FORMAT, Broker, sink_of
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.recorded import recorded
from spanmq_spark.options import hint_of
from spanmq_spark.reader import queue_named
from spanmq_spark.session import adopt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["MigrateReport", "migrate"]

BROKERS: Final = ("amqp", "kafka", "sqs")
# The label under which the queue knows this receiver: a second checkpoint under it is refused.
RECEIVER: Final = "migrate"
# Messages of one batch: the number that a kill may send twice, and that the tasks hold in memory together.
BATCH: Final = 50_000
BATCH_BYTES: Final = 128_000_000
# Connections to the broker at a time.
TASKS: Final = 4
LOOK_SECONDS: Final = 1

Progress = Callable[[int], None]
# How `--to` tells a format from a broker.
PREFIX: Final = "format:"
# The end of a query is reported after all of its batches, and may still be pending when awaitTermination
# returns.
END_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """The result of a migration. `left` messages are still in the queue: delayed, leased, or sent in the meantime.

    `sent` counts what this run handed over and the broker confirmed. With a dry run it is what waits.
    """

    queue: str
    to: str
    sent: int
    left: int
    dead_letters: int
    seconds: float
    is_dry_run: bool


def broker_named(
    kind: str,
    url: str,
    target: str,
    *,
    exchange: str = "",
    settings: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
) -> Broker | SparkFormat:
    """Return the broker of a `kind` ("amqp", "kafka" or "sqs") at a `url`.

    `target` is the routing key (for AMQP's default `exchange` a queue) or the topic; `settings` are Kafka's own. The
    kind `format:NAME` is any format that Spark can write, with `settings` and `columns`; it does not use `url` and
    `target`. Raises InvalidArgumentError for an unknown kind or no url.
    """
    if kind.startswith(PREFIX):
        return SparkFormat(name=kind[len(PREFIX) :], settings=dict(settings or {}), columns=tuple(columns))
    if kind not in BROKERS:
        hint = hint_of(kind, BROKERS, f"There are {', '.join(BROKERS)}, {PREFIX}NAME.")
        raise InvalidArgumentError(f"there is no broker {kind!r}", hint=hint)
    if not url:
        raise InvalidArgumentError(f"the url of the broker is missing: {kind} needs one")
    if kind == "amqp":
        from spanmq_spark.brokers.amqp import AmqpBroker

        return AmqpBroker(url=url, routing_key=target, exchange=exchange)
    if kind == "kafka":
        from spanmq_spark.brokers.kafka import KafkaBroker

        servers = url.removeprefix("kafka://").rstrip("/")
        return KafkaBroker(servers=servers, topic=target, settings=dict(settings or {}))
    from spanmq_spark.brokers.sqs import SqsBroker

    return SqsBroker(url=url)


@recorded("migrate", lambda given: given["broker"].describe())
def migrate(
    spark: SparkSession,
    dsn: str,
    queue: str,
    broker: Broker | SparkFormat,
    checkpoint: str | Path,
    *,
    follow: bool = False,
    batch: int = BATCH,
    tasks: int = TASKS,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MigrateReport:
    """Send the messages of a `queue` to a `broker`, each at least once, and remove them from the queue.

    `spark` is the session and `dsn` the database. Each batch has up to `batch` messages, sent by this number of
    `tasks`; `progress` is called with the number that is sent. Ends when no more messages can be received; with
    `follow` it continues until it is stopped. Groups keep their order. A message that is sent twice, after a kill, has
    the same mark both times. `checkpoint` is a folder of its own for each queue, with which a run continues where the
    last one ended. `dry_run` checks that the broker would accept messages, and counts. Raises PipelineError if the
    broker does not answer, refuses, or lacks the target, and QueueNotFoundError.
    """
    began = time.monotonic()
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        visible = server.queues.metrics(queue).visible_length
    broker.check()
    sent = 0
    # At least once: a failed run may hold messages that no other receiver sees. Then as long as messages
    # arrive: visible messages that cannot be received are behind others of their group.
    more = 1
    while not dry_run and (visible or sent == 0) and more:
        count = RowCount()
        with clear_errors():
            spark.streams.addListener(count)
            try:
                query = _start(spark, dsn, queue, broker, checkpoint, follow=follow, batch=batch, tasks=tasks)
                more = _watch(query, count, sent, progress)
            finally:
                spark.streams.removeListener(count)
        sent += more
        with rows.connected(dsn) as server:
            visible = server.queues.metrics(queue).visible_length
    with rows.connected(dsn) as server:
        left = server.queues.metrics(queue).length
        dead_letters = sum(each.count for each in server.dead_letters.count(queue))
    return MigrateReport(
        queue=queue,
        to=broker.describe(),
        sent=visible if dry_run else sent,
        left=left,
        dead_letters=dead_letters,
        seconds=time.monotonic() - began,
        is_dry_run=dry_run,
    )


def _start(
    spark: SparkSession,
    dsn: str,
    queue: str,
    broker: Broker | SparkFormat,
    checkpoint: str | Path,
    *,
    follow: bool,
    batch: int,
    tasks: int,
) -> StreamingQuery:
    from pyspark.sql.functions import expr

    adopt(spark)
    reader = spark.readStream.format("spanmq").option("dsn", dsn).option("queue", queue)
    reader = reader.option("receiver", RECEIVER).option("maxOffsetsPerTrigger", batch)
    reader = reader.option("maxBytesPerTrigger", BATCH_BYTES)
    frame = reader.option("includeHeaders", "true").load()
    if isinstance(broker, SparkFormat):
        # As it is read: within a task in the order of ids, which a shuffle would lose.
        writer = broker.writer(frame)
    else:
        spark.dataSource.register(sink_of(broker))
        # All messages of a group are in one task, which sends them in order.
        key = expr("coalesce(`group`, cast(message_id as string))")
        writer = frame.repartition(tasks, key).writeStream.format(FORMAT)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer if follow else writer.trigger(availableNow=True)).start()


def _watch(query: StreamingQuery, count: RowCount, base: int, progress: Progress | None) -> int:
    """Wait for the end of a stream, and give how many messages it sent; an interruption stops it."""
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            if progress is not None:
                progress(base + count.so_far(query))
    finally:
        query.stop()
    sent = count.whole(query)
    if progress is not None:
        progress(base + sent)
    return sent


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFormat:
    """A format by its name, with its options. `columns` are SQL expressions; none: the source's own columns.

    As exactly once as the sink of that format is: files and Delta are, Kafka is not.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def describe(self) -> str:
        """Name the target, without other settings, which may hold credentials."""
        return " ".join(["format", self.name, *([self.settings["path"]] if "path" in self.settings else [])])

    def check(self) -> None:
        """Raise InvalidArgumentError without a name; one that it has not Spark refuses at the start."""
        if not self.name:
            raise InvalidArgumentError(
                "a format needs a name", hint=f"Such as {PREFIX}parquet, or any that your Spark can write."
            )

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Return the writer of a stream."""
        chosen = frame.selectExpr(*self.columns) if self.columns else frame
        settings: dict[str, Any] = dict(self.settings)
        return chosen.writeStream.format(self.name).options(**settings)


class RowCount(StreamingQueryListener):
    """Counts what the queries of a session read that begin while it listens."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rows: Counter[str] = Counter()
        self._ended: set[str] = set()

    def so_far(self, query: StreamingQuery) -> int:
        """Return the number of rows in the batches reported so far."""
        with self._changed:
            return self._rows[str(query.runId)]

    def whole(self, query: StreamingQuery) -> int:
        """Return the number of rows in all batches of a query that has ended."""
        run = str(query.runId)
        with self._changed:
            self._changed.wait_for(lambda: run in self._ended, END_SECONDS)
            return self._rows[run]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: it has read nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Add a batch."""
        with self._changed:
            self._rows[str(event.progress.runId)] += event.progress.numInputRows

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record the end of the query: no batch will follow."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()
