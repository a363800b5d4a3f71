"""A driver that stops at named seams, where a test kills it.

`python -m spark.tests.process.driver ACTS` runs all at once, each on the queue `orders` of its own database.
A test in whose own session an act runs gives no seam.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pyarrow
from lab.bench.history.recording import recording
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.types import StructType

from pyspark_spanmq import DefaultSource
from spanmq.client._sync.connection import ConnectionLink
from spanmq.client.call import SqlCall
from spanmq_spark import source
from spanmq_spark.jobs import dead_letters
from spanmq_spark.jobs import export as export_module
from spanmq_spark.jobs.archived import Archived
from spanmq_spark.jobs.backfill import BackfillReport
from spanmq_spark.jobs.backfill import backfill as run_backfill
from spanmq_spark.jobs.delta import DeltaFormat
from spanmq_spark.jobs.manifests import run as runs
from spanmq_spark.jobs.manifests import state, store
from spanmq_spark.jobs.migrate import MigrateReport
from spanmq_spark.jobs.migrate import migrate as run_migrate
from spanmq_spark.options import read_options
from spanmq_spark.reader import RangePartition
from spanmq_spark.session import adopt, java_options, session
from spanmq_spark.stream import Offset, StreamReader
from spanmq_spark.writer import CHUNK, QueueStreamWriter, QueueWriter, Written, identity

# In the order in which a batch passes them.
STREAM_SEAMS: Final = ("claimed", "planned", "reading", "written", "committed", "settled")
SEND_SEAMS: Final = ("copying", "copied", "published")
# Delta is committed before the manifest is written; of Parquet files the manifest is the commit.
EXPORT_SEAMS: Final = ("written", "verified", "committing", "committed", "named")
MIGRATE_SEAMS: Final = ("publishing", "half confirmed", "all confirmed")
CHUNK_SEAMS: Final = ("begun", "done")
NO_SEAM: Final = ""
EXAMPLE: Final = Path(__file__).parents[3] / "examples/migrate/to_rabbitmq.py"
# More than a redriven body was before: more than any other body.
REPAIRED: Final = 1_000_000_000
SEAM_OPTIONS: Final = ("seam", "folder", "after")
HIT: Final = "hit"
# The folder of what the clients of an act have recorded.
HISTORY: Final = "history"
# What the process of a reader records until it ends.
RECORDED: Final = ExitStack()
GROUPS: Final = 5
# Of an export, as they are: an act that has stopped leaves its own in their places.
STEPS: Final = (export_module.verify, DeltaFormat.commit, store.write_manifest, state.record)


@dataclass(frozen=True)
class Act:
    """What a driver does until it comes to the seam. `batch` are messages; `url` and `target` a broker's,
    or `url` that of a lake.

    The seams of a migration are those of the batch with the message that follows message `after`; of dead
    letters, of the transaction that follows on so many; of a stream that sends, of the epoch of this number.
    """

    what: str
    dsn: str
    folder: Path
    seam: str
    batch: int = 100
    after: int = 0
    url: str = ""
    target: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


class Stop:
    """Stops for good where the process is to be killed."""

    def __init__(self, seam: str, folder: Path) -> None:
        self.seam, self.folder = seam, folder

    def at(self, seam: str) -> None:
        if seam == self.seam:
            (self.folder / HIT).touch()
            time.sleep(3600)


class StoppingReader(StreamReader):
    def __init__(self, source: SeamSource, schema: StructType) -> None:
        super().__init__(read_options(source.plain), schema)
        self._stop = source.stop
        self._is_recorded = False

    def _record(self) -> None:
        """Record the calls of this process from now on: it is one reader's, and ends with it."""
        if not self._is_recorded:
            RECORDED.enter_context(recording(self._stop.folder / HISTORY, f"stream {os.getpid()}", "orders"))
            self._is_recorded = True

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
        """Stop before what is up to `start` is settled, after a claim, and after the last settlement."""
        self._record()
        if start and start["lease"] > 0:
            self._stop.at("committed")
        end = super().latestOffset(start, limit)
        if start and end != start:
            self._stop.at("claimed")
        elif start and start["lease"] > 0:
            self._stop.at("settled")
        return end

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        """Stop when the offset is in the checkpoint, and no task has run."""
        self._record()
        found = super().partitions(start, end)
        if found:
            self._stop.at("planned")
        return found

    def read(self, partition: RangePartition) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        """Stop in the middle of a task."""
        for batch in super().read(partition):
            yield batch
            self._stop.at("reading")


class StoppingWriter(QueueWriter):
    def __init__(self, source: SeamSource, schema: StructType) -> None:
        super().__init__(read_options(source.plain), schema)
        self._stop = source.stop

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        return super().write(stopping(iterator, self._stop))

    def commit(self, messages: Sequence[Written | None]) -> None:  # type: ignore[override]
        self._stop.at("copied")
        super().commit(messages)
        self._stop.at("published")


class StoppingStreamWriter(QueueStreamWriter):
    """Stops in one epoch; Spark has not heard of it when it is published."""

    def __init__(self, source: SeamSource, schema: StructType) -> None:
        super().__init__(read_options(source.plain), schema)
        self._stop, self._epoch = source.stop, int(source.options["after"])

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        _, epoch = identity()
        return super().write(stopping(iterator, self._stop) if epoch == self._epoch else iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        if batchId == self._epoch:
            self._stop.at("copied")
        super().commit(messages, batchId)
        if batchId == self._epoch:
            self._stop.at("published")


def stopping(iterator: Iterator[pyarrow.RecordBatch], stop: Stop) -> Iterator[pyarrow.RecordBatch]:
    """Yield the batches of a task, and stop when some of its rows are in the log, if it has so many."""
    passed = 0
    for batch in iterator:
        yield batch
        passed += batch.num_rows
        if passed > CHUNK:
            stop.at("copying")
    stop.at("copying")


class SeamSource(DefaultSource):
    """The source, with seams and options for them."""

    @property
    def plain(self) -> Mapping[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in SEAM_OPTIONS}

    @property
    def stop(self) -> Stop:
        return Stop(self.options["seam"], Path(self.options["folder"]))

    def schema(self) -> StructType:
        return source.schema(self.plain)


class StoppingSource(SeamSource):
    @classmethod
    def name(cls) -> str:
        return "stopping"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        return StoppingReader(self, schema)

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        return StoppingWriter(self, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:  # noqa: N802
        return StoppingStreamWriter(self, schema)


def named(given: Any, act: Act) -> Any:
    """Name the source of a reader or writer: the one with seams, or the user's."""
    given = given.option("dsn", act.dsn).option("queue", "orders")
    return given.format("spanmq") if act.seam == NO_SEAM else with_seam(given.format("stopping"), act)


def with_seam(given: Any, act: Act) -> Any:
    return given.options(seam=act.seam, folder=str(act.folder), after=act.after)


def stream(spark: SparkSession, act: Act) -> None:
    """Drain the queue into a folder for each batch, which a replay overwrites."""
    stop = Stop(act.seam, act.folder)

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(act.folder / "lake" / f"batch={number}"))
        stop.at("written")

    spark.dataSource.register(StoppingSource)
    reader = with_seam(named(spark.readStream, act).format("stopping"), act)
    frame = reader.options(maxOffsetsPerTrigger=act.batch, minPartitions=2).load()
    writer = frame.writeStream.foreachBatch(write).option(
        "checkpointLocation", str(act.folder / "checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()


def send(spark: SparkSession, act: Act) -> None:
    """Send what the Parquet files of the folder `bodies` hold."""
    adopt(spark)
    writer = named(spark.read.parquet(str(act.folder / "bodies")).write, act)
    writer.option("writerId", "load").mode("append").save()


def relay(spark: SparkSession, act: Act) -> None:
    """Send the same by a stream, a file in each epoch."""
    adopt(spark)
    reader = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
    writer = named(reader.parquet(str(act.folder / "bodies")).writeStream, act)
    writer = writer.option("checkpointLocation", str(act.folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


@contextmanager
def seamed(act: Act) -> Iterator[None]:
    """Write with seams, whatever writes."""
    of = DataFrameWriter.format

    def format_of(writer: DataFrameWriter, name: str) -> DataFrameWriter:
        return of(writer, name) if act.seam == NO_SEAM else with_seam(of(writer, "stopping"), act)

    with patch.object(DataFrameWriter, "format", format_of):
        yield


def backfill(spark: SparkSession, act: Act) -> BackfillReport:
    """Send the same by the job, each group in its order. With a seam it is the only act of its driver."""
    order = "cast(get_json_object(body, '$.order') as long)"
    with seamed(act):
        return run_backfill(
            spark,
            act.dsn,
            "orders",
            str(act.folder / "bodies"),
            job_id="load",
            body="body",
            group=f"{order} % {GROUPS}",
            order=order,
        )


def replay(spark: SparkSession, act: Act) -> BackfillReport:
    """Send the archive of the queue `past` again, out of a lake. With a seam it is the only act of its driver."""
    export_module.export(spark, act.dsn, "past", lake_of(act))
    with seamed(act):
        return run_backfill(spark, act.dsn, "orders", Archived("past", lake_of(act)), job_id="load")


def lake_of(act: Act) -> str:
    """Return the lake of an act: `url` is that of an object store."""
    return act.url or str(act.folder / "lake")


def export(spark: SparkSession, act: Act, kind: str = "delta") -> export_module.ExportReport:
    """Export the archive into a table in the folder `lake`."""
    stop = Stop(act.seam, act.folder)
    verify, commit, write_manifest, note = STEPS

    def verifying(*given: Any) -> None:
        stop.at("written")
        verify(*given)
        stop.at("verified")

    def committing(*given: Any) -> None:
        stop.at("committing")
        commit(*given)
        stop.at("committed")

    def naming(*given: Any, **named: Any) -> None:
        if kind != "delta":
            stop.at("committing")
        write_manifest(*given, **named)

    def noting(*given: Any, **named: Any) -> None:
        stop.at("named")
        note(*given, **named)

    database = str(conninfo_to_dict(act.dsn)["dbname"])
    with (
        recording(act.folder / HISTORY, f"export {os.getpid()}", "orders", database),
        patch.object(export_module, "verify", verifying),
        patch.object(DeltaFormat, "commit", committing),
        patch.object(runs, "write_manifest", naming),
        patch.object(runs, "record", noting),
    ):
        return export_module.export(spark, act.dsn, "orders", lake_of(act), format=kind)


def export_parquet(spark: SparkSession, act: Act) -> export_module.ExportReport:
    """Export the archive into Parquet files."""
    return export(spark, act, "parquet")


def export_store(spark: SparkSession, act: Act) -> export_module.ExportReport:
    """Export the archive into a Delta table of an object store."""
    return export(spark, act)


def export_store_parquet(spark: SparkSession, act: Act) -> export_module.ExportReport:
    """Export the archive into Parquet files of an object store."""
    return export(spark, act, "parquet")


def migrate(spark: SparkSession, act: Act) -> MigrateReport:
    stop = Stop(act.seam, act.folder)

    def send(messages: DataFrame, _: int) -> None:
        """Send a batch, and stop before, between and after its two halves."""
        ids = [row.message_id for row in messages.select("message_id").collect()]
        if not ids or max(ids) <= act.after:
            to_rabbit(messages, act)
            return
        half = (min(ids) + max(ids)) // 2
        stop.at("publishing")
        to_rabbit(messages.where(f"message_id <= {half}"), act)
        stop.at("half confirmed")
        to_rabbit(messages.where(f"message_id > {half}"), act)
        stop.at("all confirmed")

    checkpoint = act.folder / "checkpoint"
    return run_migrate(spark, act.dsn, "orders", send, checkpoint, batch=act.batch, tasks=1)


def to_rabbit(messages: DataFrame, act: Act) -> None:
    """Send these by the example."""
    url, target = act.url, act.target
    example: Any = runpy.run_path(str(EXAMPLE))["publish"]
    messages.foreachPartition(lambda rows: example(url, target, rows))


def redrive(
    spark: SparkSession, act: Act, do: dead_letters.Act = "redrive"
) -> dead_letters.DeadLettersReport:
    """Put all dead letters back, each with another body, `batch` in a transaction."""
    stop, run = Stop(act.seam, act.folder), ConnectionLink.run
    done, function = 0, "redrive" if do == "redrive" else "purge_dead_letters"

    def running(link: ConnectionLink, call: SqlCall[Any]) -> Any:
        nonlocal done
        if call.function != function:
            return run(link, call)
        if done >= act.after:
            stop.at("begun")
        count = run(link, call)
        done += count
        if done > act.after:
            stop.at("done")
        return count

    with patch.object(ConnectionLink, "run", running), patch.object(dead_letters, "CHUNK", act.batch):
        repair = f"cast(body as bigint) + {REPAIRED}" if do == "redrive" else None
        return dead_letters.dead_letters(spark, act.dsn, "orders", act=do, all_causes=True, body=repair)


def discard(spark: SparkSession, act: Act) -> dead_letters.DeadLettersReport:
    """Delete all dead letters, `batch` in a transaction."""
    return redrive(spark, act, "discard")


ACTS: Final[dict[str, Callable[[SparkSession, Act], object]]] = {
    each.__name__: each
    for each in (
        *(stream, send, relay, backfill, replay, migrate, redrive, discard),
        *(export, export_parquet, export_store, export_store_parquet),
    )
}


def main(given: str) -> None:
    """Run these acts; each ends at its seam, and holds there what it has."""
    # It is soon killed.
    frugal = java_options("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": frugal}
    acts = [Act(**{**each, "folder": Path(each["folder"])}) for each in json.loads(given)]
    # A task that has stopped keeps its place.
    spark = session(f"local[{2 * len(acts)}]", settings=settings)
    spark.dataSource.register(StoppingSource)
    for act in acts:
        thread = threading.Thread(target=ACTS[act.what], args=(spark, act), daemon=True)
        thread.start()
        # One after the other: what Spark does the first time it does once.
        while not (act.folder / HIT).exists():
            if not thread.is_alive():
                raise RuntimeError(f"{act.what} ended before its seam {act.seam}")
            time.sleep(0.02)
    time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1])
