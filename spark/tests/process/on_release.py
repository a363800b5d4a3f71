"""A program for any release of Spark: a batch read, both sinks, and an export; and whether it has streams."""

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq_spark.bodies import parse_bodies
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.export import export
from spanmq_spark.session import session


def send(spark: SparkSession, dsn: str, folder: Path) -> None:
    """Send ten messages as a batch, and ten as a stream."""
    options = {"dsn": dsn, "queue": "orders"}
    frame = spark.range(10).selectExpr("to_json(struct(id)) as body", "'a' as `group`")
    frame.write.format("spanmq").options(**options).mode("append").save()
    spark.range(10, 20, 1, 2).write.parquet(str(folder / "input"))
    source = spark.readStream.schema("id long").parquet(str(folder / "input"))
    sink = source.selectExpr("to_json(struct(id)) as body").writeStream.format("spanmq").options(**options)
    query = sink.option("checkpointLocation", str(folder / "out")).trigger(availableNow=True).start()
    query.awaitTermination()


def received(spark: SparkSession, dsn: str, folder: Path) -> int | str:
    """Read the queue as a stream; return how many messages that were, or what Spark lacks."""
    source = spark.readStream.format("spanmq").options(dsn=dsn, queue="orders")
    try:
        with clear_errors():
            sink = (
                source.load().writeStream.format("parquet").option("checkpointLocation", str(folder / "in"))
            )
            sink.trigger(availableNow=True).start(str(folder / "received")).awaitTermination()
    except PipelineError as error:
        return str(error)
    return spark.read.parquet(str(folder / "received")).count()


def main(dsn: str) -> None:
    spark = session("local[2]")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        send(spark, dsn, folder)
        reader = spark.read.format("spanmq").options(dsn=dsn, queue="orders")
        ids = parse_bodies(reader.load(), "id long").filter("message_id > 0").select("body.id")
        with Client(dsn) as client:
            client.archive("orders", [message.message_id for message in client.receive("orders", 5)])
        exported = export(spark, dsn, "orders", folder / "lake", format="delta").exported
        found = {
            "release": spark.version,
            "ids": sorted(row.id for row in ids.collect()),
            "exported": exported,
            "received": received(spark, dsn, folder),
        }
    spark.stop()
    sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main(sys.argv[1])
