"""backfill: any table or files that Spark reads, or archived messages, sent into a queue as a whole, once."""

import time
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spanmq.client.calls import Rows, argument, queue_call
from spanmq.errors import InvalidArgumentError
from spanmq_spark import rows
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.archived import Archived
from spanmq_spark.jobs.recorded import recorded
from spanmq_spark.reader import queue_named
from spanmq_spark.session import adopt

__all__ = ["BackfillReport", "backfill"]

# The column by which the rows of a group are put in order; no message has it.
PLACE: Final = "place"


@dataclass(frozen=True, slots=True)
class BackfillReport:
    """The result of a backfill `job_id` into a `queue` in `seconds`; with `is_dry_run`, its expected result.

    `sent` is 0 where a job of this id was sent before; `found` counts the rows. For a dry run with archived messages,
    the first of all that there are was sent at `oldest_at`.
    """

    queue: str
    job_id: str
    found: int
    sent: int
    seconds: float
    is_dry_run: bool
    oldest_at: datetime | None = None


@recorded(
    "backfill",
    lambda arguments: (
        str(arguments["source"]) if isinstance(arguments["source"], str | Archived) else "a frame"
    ),
)
def backfill(
    spark: SparkSession,
    dsn: str,
    queue: str,
    source: DataFrame | str | Archived,
    *,
    job_id: str,
    format: str = "parquet",  # noqa: A002 - Spark's word
    body: str | None = None,
    headers: str | None = None,
    group: str | None = None,
    order: str | None = None,
    rate: float | None = None,
    encryption_key_file: str | None = None,
    dry_run: bool = False,
) -> BackfillReport:
    """Send every row as a message into a `queue`, all visible at one instant; a second run of `job_id` sends none.

    `spark` is the session and `dsn` the database. `source` is a frame, or a path that Spark reads as `format`. `body`
    is an SQL expression of the body, by default a JSON object of all columns; `headers` one of a JSON object or null;
    `group` one of the group, by which rows are repartitioned; `order` one by which those of a group get ascending ids
    (without it they get them in no particular order). With a `rate` all tasks together write at most about this number
    of rows a second, to limit the load on the database; the rows become visible at the end in any case. With
    `encryption_key_file` (a path that executors can read) bodies are encrypted.

    Messages that are `Archived` are sent as they were, those of a group in the order of their ids, with the
    header `x-spanmq-replay-of`, as `replay()` sends those of a log. With `dry_run` they are only counted.

    Raises InvalidArgumentError for an argument that is not valid, and QueueNotFoundError.
    """
    began = time.monotonic()
    if not job_id:
        raise InvalidArgumentError("a backfill needs a job_id")
    if rate is not None and rate < 1:
        raise InvalidArgumentError(f"the rate must be 1 row a second or more, got {rate:g}")
    if order is not None and group is None:
        raise InvalidArgumentError(
            "messages have an order within a group only", hint="Name the group by an expression, too."
        )
    if isinstance(source, Archived) and {body, headers, group, order, encryption_key_file} != {None}:
        raise InvalidArgumentError("archived messages are sent as they were: choose them only")
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        arguments = argument.text("writer", f"job:{job_id}"), argument.bigint("epoch", 0)
        sent_before = server.admin.run(queue_call(queue, "bulk_published", Rows.scalar, *arguments))
    with clear_errors():
        adopt(spark)
        if isinstance(source, Archived):
            columns = ("body", "headers", "`group`", "message_id")
            # The group is among the headers, as it was written there.
            messages = _messages(spark, source.messages(spark, dsn), format, *columns).drop("group")
        else:
            messages = _messages(spark, source, format, body, headers, group, order)
        count = sent_before if sent_before is not None else messages.count()
        if not dry_run and sent_before is None:
            writer = messages.write.format("spanmq").option("dsn", dsn).option("queue", queue)
            if rate is not None:
                writer = writer.option("rowsPerSecond", max(1, int(rate / _tasks_at_once(spark, messages))))
            if encryption_key_file is not None:
                writer = writer.option("encryptionKeyFile", encryption_key_file)
            writer.option("writerId", job_id).mode("append").save()
        oldest_at = source.oldest_at(spark, dsn) if isinstance(source, Archived) and dry_run else None
    return BackfillReport(
        queue=queue,
        job_id=job_id,
        found=count,
        sent=0 if dry_run or sent_before is not None else count,
        seconds=time.monotonic() - began,
        is_dry_run=dry_run,
        oldest_at=oldest_at,
    )


def _messages(
    spark: SparkSession,
    source: DataFrame | str,
    source_format: str,
    body: str | None,
    headers: str | None,
    group: str | None,
    order: str | None,
) -> DataFrame:
    """Return the frame of messages: each group in one task, in order, for tasks number rows as they come."""
    from pyspark.sql.functions import expr

    frame = spark.read.format(source_format).load(source) if isinstance(source, str) else source
    columns = [f"{body or 'to_json(struct(*))'} as body"]
    if headers is not None:
        columns.append(f"{headers} as headers")
    if group is None:
        return frame.selectExpr(*columns)
    columns.append(f"cast({group} as string) as `group`")
    if order is not None:
        columns.append(f"{order} as {PLACE}")
    # Those of no group need not all go into one task.
    messages = frame.selectExpr(*columns).repartition(expr("coalesce(`group`, body)"))
    return messages if order is None else messages.sortWithinPartitions(PLACE).drop(PLACE)


def _tasks_at_once(spark: SparkSession, frame: DataFrame) -> int:
    """Return the number of concurrent tasks, as far as the driver knows."""
    return max(1, min(frame.rdd.getNumPartitions(), spark.sparkContext.defaultParallelism))
