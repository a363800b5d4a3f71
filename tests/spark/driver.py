"""A driver that stops at a named seam, where a test kills it.

`python -m tests.spark.driver stream|send DSN FOLDER SEAM BATCH`; a test in whose own session they run gives
no seam. A stream from the queue `orders` goes into a folder for each batch, which a replay overwrites; `send`
writes the Parquet files of FOLDER/bodies into the queue `orders`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_spanmq import DefaultSource
from spanmq.spark.options import Options, read_options
from spanmq.spark.reader import RangePartition
from spanmq.spark.session import java_options, session
from spanmq.spark.stream import Offset, StreamReader
from spanmq.spark.writer import Writer, Written

# In the order in which a batch passes them.
STREAM_SEAMS: Final = ("claimed", "planned", "reading", "written", "committed", "settled")
SEND_SEAMS: Final = ("copying", "copied", "published")
NO_SEAM: Final = ""
HIT: Final = "hit"


class Stop:
    """Stops for good where the process is to be killed."""

    def __init__(self, seam: str, folder: Path) -> None:
        self.seam, self.folder = seam, folder

    def at(self, seam: str) -> None:
        """Stop if this is the seam."""
        if seam == self.seam:
            (self.folder / HIT).touch()
            time.sleep(3600)


class StoppingReader(StreamReader):
    """The stream reader, with seams."""

    def __init__(self, options: Options, schema: StructType, stop: Stop) -> None:
        super().__init__(options, schema)
        self._stop = stop

    def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
        """Stop before what is up to `start` is settled, after a claim, and after the last settlement."""
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
        found = super().partitions(start, end)
        if found:
            self._stop.at("planned")
        return found

    def read(self, partition: RangePartition) -> Iterator[pyarrow.RecordBatch]:  # type: ignore[override]
        """Stop in the middle of a task."""
        for batch in super().read(partition):
            yield batch
            self._stop.at("reading")


class StoppingWriter(Writer):
    """The batch writer, with seams."""

    def __init__(self, options: Options, schema: StructType, stop: Stop) -> None:
        super().__init__(options, schema)
        self._stop = stop

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Stop in the middle of a task."""
        return super().write(self._stopping(iterator))

    def commit(self, messages: Sequence[Written | None]) -> None:  # type: ignore[override]
        """Stop before all is published, and after it."""
        self._stop.at("copied")
        super().commit(messages)
        self._stop.at("published")

    def _stopping(self, iterator: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in iterator:
            yield batch
            self._stop.at("copying")


class StoppingSource(DefaultSource):
    """The source, with seams; the options `seam` and `folder` are not its own."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return "stopping"

    def schema(self) -> str:
        """Give the columns that the options ask for."""
        from spanmq.spark import source

        return source.schema(self._own())

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        """Give the reader that stops."""
        return StoppingReader(read_options(self._own()), schema, self._stop())

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Give the writer that stops."""
        return StoppingWriter(read_options(self._own()), schema, self._stop())

    def _own(self) -> Mapping[str, str]:
        return {key: value for key, value in self.options.items() if key.lower() not in ("seam", "folder")}

    def _stop(self) -> Stop:
        return Stop(self.options["seam"], Path(self.options["folder"]))


def named(given: Any, dsn: str, folder: Path, seam: str) -> Any:
    """Name the source of a reader or writer: the one with seams, or the user's."""
    given = given.option("dsn", dsn).option("queue", "orders")
    if seam == NO_SEAM:
        return given.format("spanmq")
    return given.format("stopping").option("seam", seam).option("folder", str(folder))


def stream(spark: SparkSession, dsn: str, folder: Path, *, seam: str = NO_SEAM, batch: int) -> None:
    """Drain the queue into a folder for each batch."""
    stop = Stop(seam, folder)

    def write(frame: DataFrame, number: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "lake" / f"batch={number}"))
        stop.at("written")

    reader = named(spark.readStream, dsn, folder, seam)
    frame = reader.options(maxOffsetsPerTrigger=batch, minPartitions=2).load()
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def send(spark: SparkSession, dsn: str, folder: Path, *, seam: str = NO_SEAM) -> None:
    """Send what the Parquet files hold."""
    writer = named(spark.read.parquet(str(folder / "bodies")).write, dsn, folder, seam)
    writer.option("writerId", "load").mode("append").save()


def main(arguments: Sequence[str]) -> None:
    """Run one of them."""
    what, dsn, folder, seam, batch = arguments
    # It is soon killed.
    frugal = java_options("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": frugal}
    spark = session("local[2]", settings=settings)
    spark.dataSource.register(StoppingSource)
    if what == "send":
        send(spark, dsn, Path(folder), seam=seam)
    else:
        stream(spark, dsn, Path(folder), seam=seam, batch=int(batch))


if __name__ == "__main__":
    main(sys.argv[1:])
