"""Messages of a Python program through the sink: all visible at one instant, each group in its order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from spanmq.spark.cause import clear_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A message: body and headers as JSON text, and its group.
Row = tuple[str, str | None, str | None]
# The column by which the rows of a group are put in order; no message has it.
PLACE: Final = "place"


def fill(spark: SparkSession, dsn: str, queue: str, messages: Iterable[Row]) -> None:
    """Send messages, all or none. Those of one group get ascending ids in the order given.

    Raises PipelineError with the cause of what failed.
    """
    rows = [(place, *message) for place, message in enumerate(messages)]
    with clear_errors():
        frame = spark.createDataFrame(rows, f"{PLACE} long, body string, headers string, `group` string")
        # A task numbers its rows as they come: a group in one task, in order, keeps its order.
        ordered = frame.repartition("group").sortWithinPartitions(PLACE).drop(PLACE)
        writer = ordered.write.format("spanmq").option("dsn", dsn).option("queue", queue)
        writer.mode("append").save()
