"""Iceberg tables: a commit costs the same however many were before, and what no reader needs is deleted."""

from __future__ import annotations

import os
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.iceberg import IcebergFormat
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.manifests.store import Manifest
from spanmq_spark.jobs.parquet import LakeFile

pytest.importorskip("pyiceberg")
AT = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
WEEK = 7 * 86_400


def commit(table: IcebergFormat, number: int) -> None:
    """Commit a message, whose id is the number."""
    manifest = Manifest(number, "orders", "here", [], [], 1, 0, format="iceberg", token=uuid.uuid4().hex[:12])
    row = {"queue": "orders", "message_id": number, "attempt": 1, "body": "1", "archived_at": AT}
    archive = TABLES["archive"]
    batch = pyarrow.RecordBatch.from_pylist([row], schema=archive.schema)
    found = parquet.write(table.lake, archive, "orders", manifest.token, iter([batch]), table.file_schema)
    files = [LakeFile(each["name"], each["rows"], each["size"]) for each in found]
    table.commit(manifest, files)


def versions(folder: Path) -> list[Path]:
    """Return the files that describe the table, oldest first."""
    return sorted((folder / "archive" / "metadata").glob("*.metadata.json"))


def ids(version: Path) -> list[Any]:
    """Return the ids that a version of the table has, as a reader without a catalogue finds them."""
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(version.as_uri()).scan().to_arrow()
    return sorted(found.column("message_id").to_pylist())


def test_metadata_of_a_commit_does_not_grow_with_the_commits_before(database: str, tmp_path: Path) -> None:
    table = IcebergFormat(database, lake_at(tmp_path / "lake"), "archive")
    for number in range(1, 61):
        commit(table, number)
    found = versions(tmp_path / "lake")
    assert len(found) == 60
    assert found[-1].stat().st_size < 1.1 * found[19].stat().st_size
    lists = sorted(
        (tmp_path / "lake" / "archive" / "metadata").glob("snap-*"), key=lambda each: each.stat().st_mtime
    )
    assert lists[-2].stat().st_size < 1.1 * lists[18].stat().st_size
    assert ids(found[-1]) == list(range(1, 61))


def test_metadata_that_was_needed_within_a_week_is_kept_and_older_is_deleted(
    database: str, tmp_path: Path
) -> None:
    table = IcebergFormat(database, lake_at(tmp_path / "lake"), "archive")
    for number in range(1, 16):
        commit(table, number)
    earlier = versions(tmp_path / "lake")
    table.expire()
    assert versions(tmp_path / "lake") == earlier
    ago = time.time() - WEEK - 60
    for path in (tmp_path / "lake" / "archive" / "metadata").iterdir():
        os.utime(path, (ago, ago))
    for number in range(16, 31):
        commit(table, number)
    number_of_files = len(table.lake.sizes("archive/metadata"))
    table.expire()
    assert len(table.lake.sizes("archive/metadata")) < number_of_files - 14
    # A catalogue that was restored to any time of the week has a version that can be read.
    found = versions(tmp_path / "lake")
    assert found[0] == earlier[-1]
    assert [ids(each) for each in found] == [list(range(1, last + 1)) for last in range(15, 31)]


def test_snapshot_that_a_tag_of_the_user_names_stays(database: str, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    table = IcebergFormat(database, lake_at(tmp_path / "lake"), "archive")
    commit(table, 1)
    uri = URL.create(
        "postgresql+psycopg", query={key: str(value) for key, value in conninfo_to_dict(database).items()}
    )
    with catalogs.load_catalog(
        "spanmq", type="sql", uri=uri.render_as_string(hide_password=False)
    ) as catalog:
        [name] = [each for space in catalog.list_namespaces() for each in catalog.list_tables(space)]
        users = catalog.load_table(name)
        [first] = users.metadata.snapshots
        users.manage_snapshots().create_tag(first.snapshot_id, "audit").commit()
        for number in range(2, 31):
            commit(table, number)
        left = catalog.load_table(name)
        assert first.snapshot_id in {each.snapshot_id for each in left.metadata.snapshots}
        assert len(left.metadata.snapshots) < 20
        tagged = left.scan(snapshot_id=first.snapshot_id).to_arrow()
    assert tagged.column("message_id").to_pylist() == [1]
