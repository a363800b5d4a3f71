"""Small files of a lake become few: nothing is lost or there twice, whatever is killed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.spark.lakes import KilledError, archive, delta_bodies, killed, leftovers, parquet_bodies

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq.spark.jobs import plain
from spanmq.spark.jobs.compact import compact
from spanmq.spark.jobs.export import export, follow
from spanmq.spark.jobs.manifest import write_manifest
from spanmq.spark.jobs.report import report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_small_files_become_one_and_exports_and_reports_go_on(
    client: Client,
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    format: Any,  # noqa: A002
) -> None:
    bodies = delta_bodies if format == "delta" else parquet_bodies
    client.send_batch("orders", range(90))

    rounds = iter([False, False, True])

    def wait(_: float) -> bool:
        archive(client, 30)
        return next(rounds)

    archive(client, 30)
    done = follow(spark, database, "orders", tmp_path, format=format, every=1, wait=wait)
    assert (done.exports, done.exported) == (3, 90)
    first = compact(database, "orders", tmp_path)
    assert (first.replaced, first.written) == (3, 1)
    assert compact(database, "orders", tmp_path).replaced == 0
    assert bodies(tmp_path) == list(range(90))
    if format == "parquet":
        assert leftovers(tmp_path) == set()
    assert export(spark, database, "orders", tmp_path, format=format).exported == 0
    assert [row["messages"] for row in report(spark, lake=tmp_path, dry_run=True).queues] == [90]
    with pytest.raises(PipelineError, match="holds no archive of queue others"):
        compact(database, "others", tmp_path)


def test_killed_compaction_never_was_or_counts(
    client: Client, spark: SparkSession, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_after(*given: Any) -> None:
        write_manifest(*given)
        raise KilledError

    client.send_batch("orders", range(40))
    for act, files in ((killed, 2), (killed_after, 1)):
        for _ in range(2):
            archive(client, 10)
            export(spark, database, "orders", tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(plain, "write_manifest", act)
            with pytest.raises(KilledError):
                compact(database, "orders", tmp_path)
        export(spark, database, "orders", tmp_path)
        assert leftovers(tmp_path) == set()
        assert len(list(tmp_path.glob("archive/**/*.parquet"))) == files
    assert parquet_bodies(tmp_path) == list(range(40))
