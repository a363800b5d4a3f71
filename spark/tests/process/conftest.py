"""Whole Spark programs: jobs, brokers, kills. One worker has them all (GROUPS in conftest.py)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.process.object_store import serving
from spark.tests.process.rabbit import rabbit
from spark.tests.real_session import read, read_stream, spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["rabbit", "read", "read_stream", "spark"]
collect_ignore_glob = [] if find_spec("pyspark") else ["*"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Return all of these time: a time-out in a call to the JVM would fail every test after it, too."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
            if item.get_closest_marker("soak") and "SPANMQ_TEST_KILLS" not in os.environ:
                item.add_marker(pytest.mark.skip(reason="starts a driver of its own: make soak-spark"))


@pytest.fixture(scope="session")
def spark_settings() -> dict[str, str]:
    """A server for Spark Connect, on any free port."""
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }


@pytest.fixture(scope="module")
def object_store(spark: SparkSession) -> Iterator[str]:
    """Return the URI of a bucket."""
    with serving(spark) as uri:
        yield uri


@pytest.fixture(scope="session")
def connect_url(spark: SparkSession) -> str:
    """Return the address of the session's server of Spark Connect."""
    pytest.importorskip("grpc", reason="Spark Connect's client needs grpcio")
    # Scala's object, which Java sees as the one instance of a class.
    service = getattr(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return f"sc://127.0.0.1:{getattr(service, 'MODULE$').localPort()}"
