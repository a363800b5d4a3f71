"""A program for spark-submit, run by the Python of an environment that has the wheel: `DSN FOLDER HOST`.

It reads a batch, sends a stream of the queue `orders` into the queue `copies`, and exports the archive of
`orders`. The stream's task on HOST waits, with its rows at the sink, until its worker is killed.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow
from pyspark import TaskContext

from spanmq_spark.jobs.export import export
from spanmq_spark.session import session


def main(dsn: str, folder: Path, doomed: str) -> None:
    """Run it all, and write what it did into `result.json`."""

    def wait_at_sink(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import spanmq

        task = TaskContext.get()
        assert task is not None
        host = os.environ["SPARK_LOCAL_IP"]
        for batch in batches:
            yield batch
            name = f"{task.partitionId()}.{task.attemptNumber()} on {host}"
            (folder / "tasks" / name).write_text(spanmq.__file__)
            if host == doomed:
                (folder / "waiting").touch()
                time.sleep(3600)

    spark = session(name="on a cluster")
    source = {"dsn": dsn, "queue": "orders", "minPartitions": "2"}
    count = spark.read.format("spanmq").options(**source).load().count()
    stream = spark.readStream.format("spanmq").options(**source).load().select("body")
    writer = stream.mapInArrow(wait_at_sink, "body string").writeStream.format("spanmq")
    writer = writer.options(dsn=dsn, queue="copies", checkpointLocation=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    report = export(spark, dsn, "orders", folder / "lake")
    (folder / "result.json").write_text(json.dumps([spark.sparkContext.master, count, report.exported]))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
