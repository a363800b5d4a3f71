"""Which PySpark the processes run that Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow
import pytest

pytest.importorskip("pyspark")

from spanmq.spark.interpreter import python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_executors_take_pyspark_as_it_is_installed_not_out_of_a_zip(spark: SparkSession) -> None:
    def places(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyspark

        list(batches)
        yield pyarrow.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    [found] = spark.range(1, numPartitions=1).mapInArrow(places, "place string").collect()
    assert found.place.endswith("/pyspark/__init__.py")
    assert ".zip" not in found.place


def test_program_keeps_the_rest_of_the_path_and_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    zips = "/a/pyspark/python/lib/pyspark.zip:/a/pyspark/python/lib/py4j-1-src.zip"
    code = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sys.executable)"
    done = subprocess.run(
        [python(), "-c", code, "b c", "*"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"/my own:{zips}:/e*"},
    )
    assert done.stdout.strip() == f"/my own:/e* ['b c', '*'] {sys.executable}"


def test_spark_of_the_users_own_keeps_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert python() == sys.executable
