"""Archived messages as frames: out of a lake that exports wrote, or out of the database."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow
from pyarrow import compute
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spanmq.codec import dumps, loads
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import known_table
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES

TASKS_MAX: Final = 1000
# Where a message comes from that was sent again, as SQL's replay() writes it; and what is not its own any more.
REPLAY_OF: Final = "x-spanmq-replay-of"
EXPIRES_AT: Final = "x-spanmq-expires-at"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SENT_AGAIN: Final = "message_id long, `group` string, headers string, body string"


@dataclass(frozen=True, slots=True)
class Archived:
    """The archived messages of a `queue`: of a `lake`, a folder or URI, else of the database.

    Those sent from `since` to before `until` that meet `where`, a condition of Spark's SQL over the columns of
    an archive, such as `get_json_object(body, '$.amount') > 100`. Raises InvalidArgumentError for a time without a
    time zone.
    """

    queue: str
    lake: str | Path | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None and time.tzinfo is None:
                raise InvalidArgumentError(f"{name} must have a time zone, got {time.isoformat()}")

    def __str__(self) -> str:
        return f"the archive of {self.queue}" + (f" in {self.lake}" if self.lake is not None else "")

    def messages(self, spark: SparkSession, dsn: str) -> DataFrame:
        """Return what is sent again: `body` and `headers` as JSON, `message_id` and `group` to order it by."""
        frame = self._frame(spark, dsn, [column.name for column in TABLES["archive"].columns])
        for sign, time in ((">=", self.since), ("<", self.until)):
            if time is not None:
                micros = (time - _EPOCH) // timedelta(microseconds=1)
                frame = frame.where(f"enqueued_at {sign} timestamp_micros({micros})")
        if self.where is not None:
            try:
                frame = frame.where(self.where)
            except PySparkException as error:
                [first, *_] = str(error).strip().splitlines()
                raise InvalidArgumentError(
                    f"the condition {self.where!r} can't be read: {first}",
                    hint="Such as: get_json_object(body, '$.amount') > 100.",
                ) from error
        return frame.mapInArrow(_sent_again, _SENT_AGAIN)

    def oldest_at(self, spark: SparkSession, dsn: str) -> datetime | None:
        """Return when the first of all these messages was sent, whatever is chosen; None without any."""
        frame = Archived(self.queue, self.lake)._frame(spark, dsn, ["enqueued_at"])
        [[micros]] = frame.selectExpr("unix_micros(min(enqueued_at))").collect()
        return None if micros is None else _EPOCH + timedelta(microseconds=micros)

    def _frame(self, spark: SparkSession, dsn: str, columns: Sequence[str]) -> DataFrame:
        if self.lake is None:
            reader = spark.read.format("spanmq").option("dsn", dsn).option("queue", self.queue)
            return reader.option("table", "archive").option("columns", ",".join(columns)).load()
        lake = lake_at(self.lake)
        table = known_table(dsn, lake, "archive")
        names = table.read(self.queue)
        if not names:
            raise PipelineError(f"{lake.uri} holds no archive of queue {self.queue}", queue=self.queue)
        queue, condition, deleted = self.queue, self._sent_between(), dict(table.deleted(self.queue))
        own = [name for name in columns if name != PARTITIONS[0]]

        def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
            for batch in batches:
                files = [names[number] for number in batch.column("number").to_pylist()]
                for rows in parquet.read(lake, files, own, condition, deleted):
                    # A file does not have the queue, which is the name of its folder.
                    arrays = {PARTITIONS[0]: pyarrow.repeat(queue, rows.num_rows)}
                    arrays |= dict(zip(own, rows.columns, strict=True))
                    yield pyarrow.record_batch([arrays[name] for name in columns], names=list(columns))

        kinds = {column.name: column.kind.simpleString() for column in TABLES["archive"].columns}
        numbers = spark.range(0, len(names), 1, min(len(names), TASKS_MAX)).withColumnRenamed("id", "number")
        return numbers.mapInArrow(read, ", ".join(f"`{name}` {kinds[name]}" for name in columns))

    def _sent_between(self) -> compute.Expression | None:
        """Return the times as a condition for readers of Parquet, which skip what has none of them."""
        at = compute.field("enqueued_at")
        conditions = []
        if self.since is not None:
            conditions.append(at >= pyarrow.scalar(self.since))
        if self.until is not None:
            conditions.append(at < pyarrow.scalar(self.until))
        return conditions[0] & conditions[-1] if conditions else None


def _sent_again(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Write into the headers which message each was, and when it was sent."""
    for batch in batches:
        names = ("queue", "message_id", "enqueued_at", "headers")
        messages = zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        headers = [_headers(*message) for message in messages]
        yield pyarrow.record_batch(
            [
                batch.column("message_id"),
                batch.column("group"),
                pyarrow.array(headers, pyarrow.string()),
                batch.column("body"),
            ],
            names=["message_id", "group", "headers", "body"],
        )


def _headers(queue: str, message_id: int, enqueued_at: datetime, text: str | None) -> str:
    headers = loads(text) if text is not None else None
    if not isinstance(headers, dict):
        headers = {}
    headers.pop(EXPIRES_AT, None)
    was = {"queue": queue, "msg_id": message_id, "enqueued_at": enqueued_at.astimezone(UTC).isoformat()}
    return dumps({**headers, REPLAY_OF: was})
