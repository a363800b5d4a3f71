"""The programs of docs/guides/spark.md, and the declarative pipeline of examples/pipeline: they run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.documented import run_programs

from spanmq.client import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


def test_programs_of_the_page_run(
    client: Client, spark: SparkSession, database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies = [{"order": i, "amount": i / 2} for i in range(4)]
    client.archive("orders", client.send_batch("orders", bodies, group="a"))
    client.send_batch("orders", range(5))
    scope: dict[str, Any] = {
        "dsn": database,
        "frame": spark.createDataFrame([(7, "b")], "amount int, customer string"),
    }
    try:
        run_programs("guides/spark", scope, lambda program: program.replace("…", str(tmp_path)))
    finally:
        spark.sql("drop table if exists orders")
    assert re.search(r"\|\s+a\|\s+3\.0\|", capsys.readouterr().out)
    lake = spark.read.parquet(str(tmp_path / "orders")).select("body").collect()
    sent = [*range(5), *({"id": number} for number in range(3))]
    assert sorted((json.loads(row.body) for row in lake), key=str) == sent
    [message] = client.receive("orders", 10)
    assert (message.body, message.group) == ({"amount": 7, "customer": "b"}, "b")


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A database of Spark's, for tables."""
    name = f"tables_{uuid.uuid4().hex[:8]}"
    spark.sql(f"create database {name} location '{tmp_path / 'tables'}'")
    yield name
    spark.sql(f"drop database {name} cascade")


def test_declarative_pipeline_runs(
    client: Client, spark: SparkSession, connect_url: str, tables: str, database: str, tmp_path: Path
) -> None:
    pytest.importorskip("yaml", reason="Spark's pipelines need PyYAML")
    pipeline = tmp_path / "pipeline"
    shutil.copytree(ROOT / "examples" / "pipeline", pipeline)
    spec = pipeline / "spark-pipeline.yml"
    # Into folders of this test.
    changed = spec.read_text().replace("file:///tmp/spanmq-pipeline", f"file://{tmp_path / 'storage'}")
    assert changed != spec.read_text()
    spec.write_text(f"{changed}database: {tables}\n")
    # The tests' session is older than this database, so that its SPANMQ_DSN can't be.
    program = pipeline / "transformations" / "orders.py"
    source = program.read_text()
    assert source.count('format("spanmq")') == 1
    program.write_text(source.replace('format("spanmq")', f'format("spanmq").option("dsn", {database!r})'))
    client.send_batch("orders", [{"customer": f"c{i % 2}", "amount": i} for i in range(10)])
    done = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec)],
        env={**os.environ, "SPARK_REMOTE": connect_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = spark.read.table(f"{tables}.customers").orderBy("customer").collect()
    assert [tuple(row) for row in rows] == [("c0", 20.0, 5), ("c1", 25.0, 5)]
    assert client.queues.metrics("orders").length == 0
