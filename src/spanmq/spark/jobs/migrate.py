"""migrate: moves the messages of a queue to another broker, until it is empty, or continuously.

An ordinary stream: messages that the broker has confirmed are settled when the checkpoint contains them.
After a kill, the next run sends the current batch again, with the same marks, and continues.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanmq.errors import InvalidArgumentError
from spanmq.spark import rows
from spanmq.spark.brokers.format import PREFIX, SparkFormat
from spanmq.spark.brokers.outgoing import Broker
from spanmq.spark.cause import clear_errors
from spanmq.spark.jobs.recorded import recorded
from spanmq.spark.reader import queue_named
from spanmq.spark.session import adopt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spanmq.spark.row_count import RowCount

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


@dataclass(frozen=True, slots=True)
class MigrateReport:
    """What a migration did. `left` messages are still in the queue: delayed, leased, or sent meanwhile.

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
    """Return a broker: `target` is the routing key (for AMQP's default exchange a queue) or the topic.

    `format:NAME` is any format that Spark can write, with `settings` and `columns`; it does not use `url` and
    `target`.
    """
    if kind.startswith(PREFIX):
        return SparkFormat(name=kind[len(PREFIX) :], settings=dict(settings or {}), columns=tuple(columns))
    if kind not in BROKERS:
        near = difflib.get_close_matches(kind, BROKERS, n=1)
        raise InvalidArgumentError(
            f"there is no broker {kind!r}",
            hint=f"Did you mean {near[0]}?" if near else f"There are {', '.join(BROKERS)}, {PREFIX}NAME.",
        )
    if not url:
        raise InvalidArgumentError(f"the url of the broker is missing: {kind} needs one")
    if kind == "amqp":
        from spanmq.spark.brokers.amqp import AmqpBroker

        return AmqpBroker(url=url, routing_key=target, exchange=exchange)
    if kind == "kafka":
        from spanmq.spark.brokers.kafka import KafkaBroker

        servers = url.removeprefix("kafka://").rstrip("/")
        return KafkaBroker(servers=servers, topic=target, settings=dict(settings or {}))
    from spanmq.spark.brokers.sqs import SqsBroker

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
    """Send the messages of a queue to a broker, each at least once, and remove them from the queue.

    Ends when no more messages can be received; with `follow` it continues until it is stopped. Groups keep
    their order. A message that is sent twice, after a kill, has the same mark both times. `checkpoint` is a
    folder of its own for each queue, with which a run continues where the last one ended. `dry_run` checks
    that the broker would accept messages, and counts. Raises PipelineError if the broker does not answer,
    refuses, or lacks the target.
    """
    from spanmq.spark.row_count import RowCount

    began = time.monotonic()
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        _, visible, _ = rows.waiting(server, queue)
    broker.check()
    sent = 0
    # At least once: a failed run may hold messages that no other receiver sees. Then as long as messages
    # arrive: visible messages that cannot be received are behind others of their group.
    more = 1
    while not dry_run and (visible or sent == 0) and more:
        with clear_errors(), RowCount(spark) as count:
            query = _start(spark, dsn, queue, broker, checkpoint, follow=follow, batch=batch, tasks=tasks)
            more = _watch(query, count, sent, progress)
        sent += more
        with rows.connected(dsn) as server:
            _, visible, _ = rows.waiting(server, queue)
    with rows.connected(dsn) as server:
        left, _, _ = rows.waiting(server, queue)
        dead_letters = rows.count_dead_letters(server, queue)
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

    from spanmq.spark.brokers.sink import FORMAT, sink_of

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
