"""The last act of the demo, in the tests' own session: the archive in Parquet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.process.lakes import parquet_rows
from typer.testing import CliRunner

from spanmq.cli.app import app
from spanmq.errors import ExtraNotInstalledError
from spanmq_lab.demo import QUEUE
from spanmq_spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def demo(database: str, folder: Path, rows: int) -> Any:
    arguments = ["demo", "--rows", str(rows), "--consumers", "2", "--export", str(folder), "--json"]
    done = CliRunner().invoke(app, [*arguments, "--dsn", database])
    assert done.exit_code == 0, done.output
    return done


def test_flights_are_exported(spark: SparkSession, database: str, tmp_path: Path) -> None:
    done = demo(database, tmp_path, 1500)
    assert json.loads(done.stdout)["rows"] == 1500
    flights = [json.loads(row["body"]) for row in parquet_rows(tmp_path / "lake", QUEUE)]
    assert len(flights) == 1500
    assert flights[0].keys() >= {"carrier", "flight", "tailnum"}
    # A session that it found stays.
    assert spark.range(3).count() == 3


def test_demo_goes_on_where_there_is_no_java(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ExtraNotInstalledError("Java 17 or newer is not installed")

    monkeypatch.setattr(session, "opened", refuse)
    done = demo(database, tmp_path, 20)
    assert "no export: Java 17 or newer is not installed" in done.stderr
    assert not (tmp_path / "lake").exists()
