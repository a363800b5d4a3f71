"""Exports of dead letters and into Delta tables, audited by readers that are not Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.jobs.export import export
from spanmq.spark.jobs.manifest import read_manifests
from spanmq.spark.jobs.report import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archive(client: Client, quantity: int) -> None:
    client.archive("orders", [message.message_id for message in client.receive("orders", quantity)])


def delta_rows(lake: Path, table: str = "archive") -> list[dict[str, Any]]:
    deltalake = pytest.importorskip("deltalake")
    rows: list[dict[str, Any]] = deltalake.DeltaTable(str(lake / table)).to_pyarrow_table().to_pylist()
    return rows


def bodies(lake: Path) -> list[Any]:
    return sorted(json.loads(row["body"]) for row in delta_rows(lake))


def test_dead_letters_are_exported_with_their_stories_and_kept_until_then(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(6), group="a")
    client.nack(client.receive("orders", 6), "first", category="TRANSIENT", retry_in=0)
    client.reject(client.receive("orders", 4), "bad", error_class="ValueError", category="PERMANENT")
    first = export(spark, database, "orders", tmp_path, table="dead_letters")
    assert (first.exported, first.table) == (4, "dead_letters")
    client.redrive("orders", quantity=1, delay=0)
    client.reject(client.receive("orders", 2), "again", category="PERMANENT")
    client.set_policy("orders", {"dead_letter_retention": "1 microsecond"})
    while client.maintain():
        pass
    # One was put back, two more died: these two stay until the lake has them.
    assert [each.error for each in client.dead_letters("orders")] == ["again", "again"]
    assert export(spark, database, "orders", tmp_path, table="dead_letters").exported == 2
    while client.maintain():
        pass
    assert client.dead_letters("orders", redriven=None) == []
    files = [name for each in read_manifests(tmp_path, "orders", "dead_letters") for name in each.files]
    found = [row for name in files for row in pyarrow.parquet.ParquetFile(tmp_path / name).read().to_pylist()]
    assert [row["message_id"] for row in sorted(found, key=lambda row: row["dead_letter_id"])] == [
        1,
        2,
        3,
        4,
        1,
        5,
    ]
    assert {row["error"] for row in found} == {"bad", "again"}
    assert [each["error"] for each in json.loads(found[0]["history"])] == ["first"]
    told = report(spark, lake=tmp_path, page=tmp_path / "report.html")
    assert told.queues == []
    assert {(row["category"], row["outcome"]): row["failures"] for row in told.failures} == {
        ("TRANSIENT", "retrying"): 5,
        ("PERMANENT", "dead"): 6,
    }
    assert told.dead_letters[-1]["total"] == 6
    assert "Dead letters, all so far" in (tmp_path / "report.html").read_text("utf-8")


def test_delta_table_has_each_message_once(
    client: Client, spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run() -> int:
        return export(spark, database, "orders", tmp_path, format="delta").exported

    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    client.send_batch("orders", range(90), group="a")
    archive(client, 30)
    assert run() == 30
    [row] = [row for row in delta_rows(tmp_path) if row["body"] == "7"]
    archived = client.peek_archive("orders")[7]
    assert (row["queue"], row["message_id"], row["group"]) == ("orders", 8, "a")
    assert (row["archived_at"], row["day"]) == (archived.archived_at, f"{archived.archived_at:%Y-%m-%d}")
    # Killed before Delta's commit: it never was. Killed after it: it counts, and comes no second time.
    archive(client, 30)
    with monkeypatch.context() as patch:
        patch.setattr("spanmq.spark.jobs.delta.commit", killed)
        with pytest.raises(KilledError):
            run()
    assert bodies(tmp_path) == list(range(30))
    with monkeypatch.context() as patch:
        from spanmq.spark.jobs import manifest

        def once(lake: Path, each: manifest.Manifest, *, is_pending: bool = False) -> None:
            if not is_pending:
                raise KilledError
            manifest.write_manifest(lake, each, is_pending=True)

        patch.setattr("spanmq.spark.jobs.export.write_manifest", once)
        with pytest.raises(KilledError):
            run()
    assert bodies(tmp_path) == list(range(60))
    archive(client, 30)
    assert run() == 30
    assert run() == 0
    assert bodies(tmp_path) == list(range(90))
    named = {name for each in read_manifests(tmp_path, "orders") for name in each.files}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == named


def test_folder_of_another_format_or_table_that_is_none_is_refused(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send("orders", 1)
    archive(client, 1)
    export(spark, database, "orders", tmp_path / "lake")
    with pytest.raises(PipelineError, match="in use: its table archive is of format parquet, not delta"):
        export(spark, database, "orders", tmp_path / "lake", format="delta")
    with pytest.raises(InvalidArgumentError, match="Did you mean delta"):
        export(spark, database, "orders", tmp_path / "other", format="detla")
    with pytest.raises(InvalidArgumentError, match="Did you mean dead_letters"):
        export(spark, database, "orders", tmp_path / "other", table="dead_leters")
    assert not (tmp_path / "other").exists()
