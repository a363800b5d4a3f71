"""One Spark session for all of these tests, and a database of its own for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spanmq.client import Client
from spanmq.errors import PipelineNotAvailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batch = Callable[..., "DataFrame"]
FRUGAL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all of these time; one worker has them all (GROUPS in tests/conftest.py)."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            # A time-out in the middle of a call to the JVM would fail every test after it, too.
            item.add_marker(pytest.mark.timeout(600))
            if item.get_closest_marker("soak") and "SPANMQ_TEST_KILLS" not in os.environ:
                item.add_marker(pytest.mark.skip(reason="starts a driver of its own: make soak-spark"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from spanmq.spark.session import java_options, session

    # Local[2,4]: two tasks at once, four attempts each.
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
        # A server for test_connect.py, on any free port.
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    os.environ.pop("SPANMQ_DSN", None)
    try:
        opened = session("local[2,4]", name="spanmq tests", settings=settings)
    except PipelineNotAvailableError as error:
        pytest.skip(str(error))
    yield opened
    opened.stop()


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> str:
    """Give the address of the session's server of Spark Connect."""
    pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")
    # Scala's object, which Java sees as the one instance of a class.
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


@pytest.fixture
def batch(spark: SparkSession, database: str) -> Batch:
    """Read a queue as a batch, with options."""

    def load(queue: str = "orders", **options: Any) -> DataFrame:
        reader = spark.read.format("spanmq").option("dsn", database).option("queue", queue)
        return reader.options(**options).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, database: str) -> Batch:
    """Read a queue as a stream, with options."""

    def load(queue: str = "orders", **options: Any) -> DataFrame:
        reader = spark.readStream.format("spanmq").option("dsn", database).option("queue", queue)
        return reader.options(**options).load()

    return load
