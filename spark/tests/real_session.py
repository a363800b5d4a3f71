"""One real Spark session for all tests of a run, and what they do with it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import patience

from spanmq.errors import ExtraNotInstalledError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., "DataFrame"]
FRUGAL = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# For what a stream does in the end, on however busy a machine.
SECONDS = 500


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """What the tests of a folder want of their session beside."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_settings: dict[str, str]) -> Iterator[SparkSession]:
    """A session with two tasks at once and four attempts each."""
    from spanmq_spark.session import java_options, session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        # No test runs long enough to get back what Java's second compiler takes.
        "spark.driver.extraJavaOptions": java_options(FRUGAL),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.python.worker.reuse": "true",
        # A machine that runs other tests beside may need longer to start a process.
        "spark.python.authenticate.socketTimeout": "120s",
        # Ended children must not write into the tests' output.
        "spark.executorEnv.PYTHONWARNINGS": "ignore",
        **spark_settings,
    }
    os.environ.pop("SPANMQ_DSN", None)
    try:
        opened = session("local[2,4]", name="spanmq tests", settings=settings)
    except ExtraNotInstalledError as error:
        pytest.skip(str(error))
    yield opened
    opened.stop()


@pytest.fixture
def read(spark: SparkSession, database: str) -> Read:
    """Read a queue as a batch, with options."""

    def load(queue: str = "orders", **options: Any) -> DataFrame:
        return spark.read.format("spanmq").options(dsn=database, queue=queue, **options).load()

    return load


@pytest.fixture
def read_stream(spark: SparkSession, database: str) -> Read:
    """Read a queue as a stream, with options."""

    def load(queue: str = "orders", **options: Any) -> DataFrame:
        return spark.readStream.format("spanmq").options(dsn=database, queue=queue, **options).load()

    return load


def run(frame: DataFrame, folder: Path, *, format: str = "parquet", **options: Any) -> list[int]:  # noqa: A002
    """Run a stream until it has all that was there at its start; returns how many rows each batch had.

    Its checkpoint is in the folder, as is its lake.
    """
    writer = frame.writeStream.format(format).options(
        checkpointLocation=str(folder / "checkpoint"), **options
    )
    query = writer.trigger(availableNow=True).start(*[str(folder / "lake")] * (format == "parquet"))
    try:
        query.awaitTermination(SECONDS)
    finally:
        query.stop()
    # Spark tells also of none, where none came for ten seconds.
    return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]


def lake(spark: SparkSession, folder: Path) -> Counter[Any]:
    """Count the bodies in the lake."""
    return Counter(json.loads(row.body) for row in spark.read.parquet(str(folder / "lake")).collect())


def forget_last_commit(folder: Path, *, of_sink: bool = False) -> None:
    """Undo what Spark notes after the last batch, and the sink of it, too: as if a kill had come before."""
    commits = folder / "checkpoint" / "commits"
    number = str(max(int(each.name) for each in commits.iterdir() if each.name.isdigit()))
    for log in [commits, *[folder / "lake" / "_spark_metadata"] * of_sink]:
        (log / number).unlink()
        (log / f".{number}.crc").unlink(missing_ok=True)


def failure(act: Callable[[], object]) -> str:
    """Return the text of what an act raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark wraps what readers raise
        act()
    return str(caught.value)


def wait_until(is_so: Callable[[], object], *queries: Any) -> None:
    """Wait for something that these streams do."""

    def is_over() -> bool:
        for query in queries:
            assert query.isActive or is_so(), query.exception()
        return bool(is_so())

    patience.wait_until(is_over, seconds=SECONDS)
