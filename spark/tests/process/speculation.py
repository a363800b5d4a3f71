"""A driver on a cluster that speculates: `python -m spark.tests.process.speculation MASTER DSN FOLDER`.

The first attempt of a task waits until all is published, so Spark starts a second one on the other host; then
the first goes on as if nothing had happened. It is once a task of a batch, and once of an epoch of a stream.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from spark.tests.process.cluster import EXECUTOR, HOSTS, await_file
from spark.tests.process.driver import SeamSource

from spanmq_spark.options import read_options
from spanmq_spark.programs import java_home, python
from spanmq_spark.session import java_options, session
from spanmq_spark.writer import QueueStreamWriter, QueueWriter, Written

WRITES: Final = ("batch", "stream")
# Where the first attempt waits: when it has written nothing, or when all its rows lie in the log.
SEAMS: Final = ("before", "copied")
PARTITIONS: Final = 3
ROWS: Final = 3_000
PUBLISHED: Final = "published"
COPIED: Final = "copied"
FIRST: Final = "0.0"
SECOND: Final = "0.1"
Write = Callable[[Iterator[pyarrow.RecordBatch]], Written]


def attempt() -> str:
    """Name this attempt of a task: `PARTITION.ATTEMPT`."""
    task = pyspark.TaskContext.get()
    assert task is not None
    return f"{task.partitionId()}.{task.attemptNumber()}"


class Slow:
    """Makes the first attempt of a task slow; each says in `folder` when it begins, and what it wrote."""

    def __init__(self, seam: str, folder: Path) -> None:
        self.seam, self.folder = seam, folder

    def write(self, write: Write, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        """Write, and wait before it or after it; nothing has to come from Spark after the wait."""
        batches = list(iterator)
        if not batches:
            # A stream's first epoch, which has no rows, and no second attempt.
            return write(iter(batches))
        name = attempt()
        (self.folder / f"{name} began").write_text(os.environ["SPARK_LOCAL_IP"])
        if name == FIRST and self.seam == "before":
            await_file(self.folder / PUBLISHED)
        if name == SECOND and self.seam == "copied":
            await_file(self.folder / COPIED)
        written = write(iter(batches))
        if name == FIRST and self.seam == "copied":
            (self.folder / COPIED).touch()
            await_file(self.folder / PUBLISHED)
        ended = self.folder / f"{name} ended"
        ended.with_suffix(".part").write_text(str(written.count))
        ended.with_suffix(".part").rename(ended)
        return written


class SlowWriter(QueueWriter):
    def __init__(self, source: SlowSource, schema: StructType) -> None:
        super().__init__(read_options(source.plain), schema)
        self._slow = source.slow

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        return self._slow.write(super().write, iterator)

    def commit(self, messages: Sequence[Written | None]) -> None:  # type: ignore[override]
        super().commit(messages)
        (self._slow.folder / PUBLISHED).touch()


class SlowStreamWriter(QueueStreamWriter):
    def __init__(self, source: SlowSource, schema: StructType) -> None:
        super().__init__(read_options(source.plain), schema)
        self._slow = source.slow

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Written:
        return self._slow.write(super().write, iterator)

    def commit(self, messages: Sequence[Written | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        if any(each is not None and each.count for each in messages):
            (self._slow.folder / PUBLISHED).touch()


class SlowSource(SeamSource):
    """The source with slow writers."""

    @classmethod
    def name(cls) -> str:
        return "slow"

    @property
    def slow(self) -> Slow:
        return Slow(self.options["seam"], Path(self.options["folder"]))

    def writer(self, schema: StructType, overwrite: bool) -> QueueWriter:
        return SlowWriter(self, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> QueueStreamWriter:  # noqa: N802
        return SlowStreamWriter(self, schema)


def connect(master: str) -> SparkSession:
    """Open a session on the cluster: both hosts are there before it starts a task."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ["SPARK_LOCAL_IP"] = HOSTS[0]
    os.environ["PYSPARK_PYTHON"] = python()
    settings = {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.memory": EXECUTOR,
        "spark.driver.extraJavaOptions": java_options("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
        "spark.ui.enabled": "false",
        "spark.executor.memory": EXECUTOR,
        "spark.executor.cores": "1",
        "spark.cores.max": str(len(HOSTS)),
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.scheduler.minRegisteredResourcesRatio": "1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
        "spark.sql.shuffle.partitions": "2",
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.efficiency.enabled": "false",
        # The attempt that lost is told to end; this is how long it may go on as if it had not heard.
        "spark.python.task.killTimeout": "120s",
    }
    return session(master, name="spanmq speculation", settings=settings)


def send(spark: SparkSession, given: dict[str, str]) -> None:
    bodies = spark.range(0, ROWS, 1, PARTITIONS).selectExpr("to_json(struct(id)) as body")
    bodies.write.format("slow").options(**given).mode("append").save()


def stream(spark: SparkSession, given: dict[str, str]) -> None:
    """Send what waits in another queue, by a stream."""
    source = f"to_{given['queue']}"
    reader = spark.readStream.format("spanmq").option("dsn", given["dsn"]).option("queue", source)
    frame = reader.option("minPartitions", PARTITIONS).load().select("body")
    checkpoint = f"{given['folder']}/checkpoint"
    writer = frame.writeStream.format("slow").options(**given).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def main(master: str, dsn: str, given: str) -> None:
    """Send by each kind of write, with each seam, into the queue WRITE_SEAM."""
    spark = connect(master)
    spark.dataSource.register(SlowSource)
    for what, act in zip(WRITES, (send, stream), strict=True):
        for seam in SEAMS:
            queue = f"{what}_{seam}"
            folder = Path(given) / queue
            folder.mkdir()
            act(spark, {"dsn": dsn, "queue": queue, "seam": seam, "folder": str(folder)})
            # What the attempt that lost had to do is done.
            await_file(folder / f"{FIRST} ended")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
