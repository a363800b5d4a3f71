"""Small files of a Delta lake become few; a plain one is told to be a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.tests.process.lakes import archive, delta_bodies

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq_spark.jobs.compact import compact
from spanmq_spark.jobs.export import export, follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_small_files_become_one_and_exports_go_on(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(90))
    rounds = iter([False, False, True])

    def wait(_: float) -> bool:
        archive(client, 30)
        return next(rounds)

    archive(client, 30)
    done = follow(spark, database, "orders", tmp_path, format="delta", every=1, wait=wait)
    assert (done.exports, done.exported) == (3, 90)
    first = compact(database, "orders", tmp_path)
    assert (first.replaced, first.written) == (3, 1)
    assert compact(database, "orders", tmp_path).replaced == 0
    assert delta_bodies(tmp_path) == list(range(90))
    assert export(spark, database, "orders", tmp_path, format="delta").exported == 0
    with pytest.raises(PipelineError, match="holds no archive of queue others"):
        compact(database, "others", tmp_path)
