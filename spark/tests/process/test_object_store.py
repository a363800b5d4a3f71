"""A lake in an object store; kills are in test_kill.py."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.process.lakes import archive, compacted, delta_bodies, leftovers, parquet_bodies

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("kind", "bodies"), [("parquet", parquet_bodies), ("delta", delta_bodies)])
def test_lake_in_a_store_is_exported_and_read(
    client: Client,
    spark: SparkSession,
    database: str,
    object_store: str,
    kind: Any,
    bodies: Callable[[str], list[Any]],
) -> None:
    lake = f"{object_store}/{uuid.uuid4().hex}"
    client.send_batch("orders", range(30), group="a")
    for _ in range(2):
        archive(client, 15)
        assert export(spark, database, "orders", lake, format=kind).exported == 15
    if kind == "delta":
        assert compacted(lake) == (2, 1)
    assert export(spark, database, "orders", lake, format=kind).exported == 0
    assert bodies(lake) == list(range(30))
    if kind == "parquet":
        assert leftovers(lake) == set()


def test_lake_that_no_store_has_is_an_error(
    client: Client, spark: SparkSession, database: str, object_store: str
) -> None:
    with pytest.raises(InvalidArgumentError, match="gopher://lake/x is not a lake"):
        export(spark, database, "orders", "gopher://lake/x")
    with pytest.raises(PipelineError, match="404 Not Found"):
        export(spark, database, "orders", "s3://no-such-bucket/x")
