"""Exports of dead letters and into Delta tables, audited by readers that are not Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.process.lakes import archive, bodies, leftovers, parquet_rows
from spark.tests.test_goes_back import Killed, killed

from spanmq.client import Client
from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.jobs.export import export
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.manifests.store import Manifest, write_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_dead_letters_are_exported_with_their_stories_and_kept_until_then(
    client: Client, spark: SparkSession, database: str, tmp_path: Path
) -> None:
    client.send_batch("orders", range(6), group="a")
    client.nack(client.receive("orders", 6), "first", category="TRANSIENT", retry_in=0)
    client.reject(client.receive("orders", 4), "bad", error_class="ValueError", category="PERMANENT")
    first = export(spark, database, "orders", tmp_path, table="dead_letters")
    assert (first.exported, first.table) == (4, "dead_letters")
    client.dead_letters.redrive("orders", limit=1, delay=0)
    client.reject(client.receive("orders", 2), "again", category="PERMANENT")
    client.queues.set_policy("orders", dead_letter_retention="1 microsecond")
    while client.admin.maintain():
        pass
    # One was put back, two more died: these two stay until the lake has them.
    assert [each.error for each in client.dead_letters.list("orders")] == ["again", "again"]
    assert export(spark, database, "orders", tmp_path, table="dead_letters").exported == 2
    while client.admin.maintain():
        pass
    assert client.dead_letters.list("orders", redriven=None) == []
    found = sorted(parquet_rows(tmp_path, table="dead_letters"), key=lambda row: row["dead_letter_id"])
    assert [row["message_id"] for row in found] == [1, 2, 3, 4, 1, 5]
    assert {row["error"] for row in found} == {"bad", "again"}
    assert [each["error"] for each in json.loads(found[0]["history"])] == ["first"]


def killed_with_rows(lake: Lake, manifest: Manifest) -> None:
    """End here, but for a manifest that takes the place of a killed run's."""
    if manifest.has_rows:
        killed()
    write_manifest(lake, manifest)


@pytest.mark.parametrize(
    ("kind", "before", "after", "after_act"),
    [
        # Of Parquet files the manifest is the commit; the last act is that retention hears of it.
        (
            "parquet",
            "spanmq_spark.jobs.manifests.run.write_manifest",
            "spanmq_spark.jobs.manifests.run.record",
            killed,
        ),
        (
            "delta",
            "spanmq_spark.jobs.delta.DeltaFormat.commit",
            "spanmq_spark.jobs.manifests.run.write_manifest",
            killed_with_rows,
        ),
        (
            "iceberg",
            "spanmq_spark.jobs.iceberg.IcebergFormat.commit",
            "spanmq_spark.jobs.manifests.run.write_manifest",
            killed_with_rows,
        ),
    ],
)
def test_export_killed_before_its_commit_never_was_and_after_it_counts(
    client: Client,
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
    before: str,
    after: str,
    after_act: Any,
) -> None:
    def run(expected: int) -> None:
        assert export(spark, database, "orders", tmp_path, format=kind).exported == expected

    client.send_batch("orders", range(90))
    archive(client, 30)
    run(30)
    archive(client, 30)
    for place, act, quantity in ((before, killed, 30), (after, after_act, 60)):
        with monkeypatch.context() as patch:
            patch.setattr(place, act)
            with pytest.raises(Killed):
                run(0)
        assert bodies(tmp_path, kind, database) == list(range(quantity))
    archive(client, 30)
    run(30)
    run(0)
    assert bodies(tmp_path, kind, database) == list(range(90))
    assert leftovers(tmp_path) == set()


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


@pytest.mark.parametrize("table", ["archive", "dead_letters"])
def test_export_with_nothing_new_starts_no_spark(
    client: Client, spark: SparkSession, database: str, tmp_path: Path, table: str
) -> None:
    def started() -> SparkSession:
        pytest.fail("Spark was started for nothing")

    assert export(started, database, "orders", tmp_path, table=table).exported == 0
    ids = client.send_batch("orders", range(8))
    if table == "archive":
        # With gaps between the ids.
        client.archive("orders", ids[::2])
    else:
        client.reject([each for each in client.receive("orders", 8) if each.message_id % 2], "bad")
    first = export(lambda: spark, database, "orders", tmp_path, table=table)
    assert (first.exported, first.exported_before) == (4, 0)
    second = export(started, database, "orders", tmp_path, table=table)
    assert (second.exported, second.exported_before) == (0, 4)
    assert export(started, database, "orders", tmp_path, table=table, dry_run=True).exported == 0
