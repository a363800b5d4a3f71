"""migrate: moves the messages of a queue into another system, until it is empty, or continuously.

An ordinary stream: messages that the target has are settled when the checkpoint contains their batch.
After a kill, the next run sends the current batch again, with the same ids, and continues.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from spanmq.errors import InvalidArgumentError
from spanmq_spark import rows
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.recorded import recorded
from spanmq_spark.reader import queue_named
from spanmq_spark.session import adopt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["MigrateReport", "SparkFormat", "migrate"]

# The label under which the queue knows this receiver: a second checkpoint under it is refused.
RECEIVER: Final = "migrate"
# Messages of one batch: the number that a kill may send twice.
BATCH: Final = 50_000
BATCH_BYTES: Final = 128_000_000
# Partitions of a batch for a function, and so its connections at a time.
TASKS: Final = 4
LOOK_SECONDS: Final = 1
# The end of a query is reported after all of its batches, and may still be pending when awaitTermination
# returns.
END_SECONDS: Final = 60.0

Progress = Callable[[int], None]
Send = Callable[["DataFrame", int], None]


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """The result of a migration. `left` messages are still in the queue: delayed, leased, or sent in the meantime.

    `sent` counts what this run handed over. With a dry run it is what waits.
    """

    queue: str
    to: str
    sent: int
    left: int
    dead_letters: int
    seconds: float
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFormat:
    """A format that Spark can write as a stream, by its `name`, with its options, `settings`.

    `columns` are SQL expressions over those of the source; none: all of them. A message arrives as exactly once as
    the sink of the format is: files and Delta are, Kafka is not.
    """

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()

    def writer(self, frame: DataFrame) -> DataStreamWriter:
        """Return the writer of a stream; raises InvalidArgumentError without a name."""
        if not self.name:
            raise InvalidArgumentError(
                "a format needs a name", hint="Such as parquet, or any other that your Spark can write."
            )
        frame = frame.selectExpr(*self.columns) if self.columns else frame
        settings: dict[str, Any] = dict(self.settings)
        return frame.writeStream.format(self.name).options(**settings)


def describe(target: SparkFormat | Send) -> str:
    """Return the name of a target, without other settings, which may hold credentials."""
    if isinstance(target, SparkFormat):
        return " ".join(
            ["format", target.name, *([target.settings["path"]] if "path" in target.settings else [])]
        )
    return f"{target.__module__}:{getattr(target, '__qualname__', type(target).__name__)}"


@recorded("migrate", lambda arguments: describe(arguments["target"]))
def migrate(
    spark: SparkSession,
    dsn: str,
    queue: str,
    target: SparkFormat | Send,
    checkpoint: str | Path,
    *,
    follow: bool = False,
    batch: int = BATCH,
    tasks: int = TASKS,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MigrateReport:
    """Send the messages of a `queue` to a `target`, each at least once, and remove them from the queue.

    `spark` is the session and `dsn` the database. `target` is a SparkFormat, or a function that is called with
    each batch and its number, as by Spark's `foreachBatch`, and returns when the other system has all of the batch.
    The batch of a function has this number of `tasks` as partitions: the messages of a group are in one of them,
    in their order. A batch that is sent again, after a kill, has the same number, ids and bodies.

    Each batch has up to `batch` messages; `progress` is called with the number that is sent. Ends when no more
    messages can be received; with `follow` it continues until it is stopped. `checkpoint` is a folder of its own for
    each queue, with which a run continues where the last one ended. `dry_run` only counts. Raises PipelineError if
    the target fails, and QueueNotFoundError.
    """
    began = time.monotonic()
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        visible = server.queues.metrics(queue).visible_length
    sent = 0
    # At least once: a failed run may hold messages that no other receiver sees. Then as long as messages
    # arrive: visible messages that cannot be received are behind others of their group.
    more = 1
    while not dry_run and (visible or sent == 0) and more:
        count = RowCount()
        with clear_errors():
            spark.streams.addListener(count)
            try:
                query = _start(spark, dsn, queue, target, checkpoint, follow=follow, batch=batch, tasks=tasks)
                more = _watch(query, count, sent, progress)
            finally:
                spark.streams.removeListener(count)
        sent += more
        with rows.connected(dsn) as server:
            visible = server.queues.metrics(queue).visible_length
    with rows.connected(dsn) as server:
        left = server.queues.metrics(queue).length
        dead_letters = sum(counted.count for counted in server.dead_letters.count(queue))
    return MigrateReport(
        queue=queue,
        to=describe(target),
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
    target: SparkFormat | Send,
    checkpoint: str | Path,
    *,
    follow: bool,
    batch: int,
    tasks: int,
) -> StreamingQuery:
    adopt(spark)
    reader = spark.readStream.format("spanmq").option("dsn", dsn).option("queue", queue)
    reader = reader.option("receiver", RECEIVER).option("maxOffsetsPerTrigger", batch)
    reader = reader.option("maxBytesPerTrigger", BATCH_BYTES)
    frame = reader.option("includeHeaders", "true").load()
    if isinstance(target, SparkFormat):
        # As it is read: within a task in the order of ids, which a shuffle would lose.
        writer = target.writer(frame)
    else:
        writer = frame.writeStream.foreachBatch(
            lambda messages, number: target(_ordered(messages, tasks), number)
        )
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (writer if follow else writer.trigger(availableNow=True)).start()


def _ordered(messages: DataFrame, tasks: int) -> DataFrame:
    """Return a batch in partitions: each group is in one of them, and each partition has the order of ids."""
    from pyspark.sql.functions import expr

    key = expr("coalesce(`group`, cast(message_id as string))")
    return messages.repartition(tasks, key).sortWithinPartitions("message_id")


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


class RowCount(StreamingQueryListener):
    """Counts the messages in the batches of queries that begin while it listens.

    By the source's offsets: Spark's own number has them twice if a function reads a batch twice.
    """

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
        [source] = event.progress.sources
        start, end = (json.loads(offset or "{}") for offset in (source.startOffset, source.endOffset))
        if end.get("lease") != start.get("lease"):
            with self._changed:
                self._rows[str(event.progress.runId)] += end.get("rows", 0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Record the end of the query: no batch will follow."""
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()
