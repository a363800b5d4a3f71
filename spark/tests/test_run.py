"""Runs on a lake's files: one at a time, and one that has lost its lock does no harm."""

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow
import pytest
from tests.cli.program import do

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq_spark import calls, rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_format import BY_MANIFEST, FORMATS
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.manifests.run import ManifestRun, end, run_on
from spanmq_spark.jobs.manifests.state import read_state
from spanmq_spark.jobs.manifests.store import Manifest, files_of, write_draft, write_manifest
from spanmq_spark.jobs.parquet import LakeFile

ARCHIVE = TABLES["archive"]
AT = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)


def written(dsn: str, lake: Lake, manifest: Manifest) -> list[LakeFile]:
    """Write two messages of two days."""
    row = {"queue": "orders", "attempt": 1, "body": '"ü"'}
    rows = [{**row, "message_id": n, "archived_at": AT.replace(day=29 + n)} for n in (1, 2)]
    batch = pyarrow.RecordBatch.from_pylist(rows, schema=ARCHIVE.schema)
    schema = FORMATS[manifest.format](dsn, lake, "archive").file_schema
    found = parquet.write(lake, ARCHIVE, "orders", manifest.token, iter([batch]), schema)
    return [LakeFile(each["name"], each["rows"], each["size"]) for each in found]


def begun(run: ManifestRun, kind: str) -> Manifest:
    with rows.connected(run.state.dsn) as server:
        return run.begin(rows.identity(server, "orders"), kind)


def committed(dsn: str, lake: Lake, manifest: Manifest, files: list[LakeFile]) -> Manifest:
    """Commit files as an export does."""
    with rows.connected(dsn) as server:
        position = server.admin.run(calls.note_position("orders", manifest.position))
    names = [each.name for each in files]
    manifest = replace(manifest, ids=[(1, 2)], files=names, count=2, position=position)
    BY_MANIFEST[manifest.format](dsn, lake, "archive").commit(manifest, files)
    write_manifest(lake, manifest)
    return manifest


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_run_that_has_lost_its_lock_and_was_overtaken_commits_nothing(
    client: Client, database: str, tmp_path: Path, kind: str
) -> None:
    lake = lake_at(tmp_path / "lake")
    with run_on(database, lake, "orders", "archive") as first:
        manifest = begun(first, kind)
        files = written(database, lake, manifest)
        assert [name.split("/")[2] for name in lake.sizes("archive")] == ["day=2026-01-30", "day=2026-01-31"]
        do(
            database,
            "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database"
            " where l.locktype = 'advisory' and d.datname = current_database()",
        )
        with run_on(database, lake, "orders", "archive") as second:
            assert lake.sizes("archive/queue=orders") == {}
            newer = begun(second, kind)
            # Its files would be there if it had gone on.
            files = written(database, lake, manifest)
            with pytest.raises((PipelineError, FileExistsError)):
                committed(database, lake, manifest, files)
            newer = committed(database, lake, newer, written(database, lake, newer))
            end(lake, newer)
    assert files_of(lake, "orders") == newer.files
    assert read_state(database, lake, "orders", "archive").ids_in(None) == [(1, 2)]
    assert sorted(FORMATS[kind](database, lake, "archive").read("orders")) == sorted(newer.files)


def test_run_killed_while_it_takes_the_number_of_one_that_was_killed(
    client: Client, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    lake = lake_at(tmp_path)
    with run_on(database, lake, "orders", "archive") as first:
        manifest = begun(first, "delta")
        files = written(database, lake, manifest)
        # Also killed within the writing of a file.
        half = tmp_path / "_spanmq" / "archive" / "manifest" / "orders" / "00000001.json.0f0f0f0f.draft"
        half.parent.mkdir(parents=True)
        half.touch()
        # All but the commit.
        write_draft(lake, replace(manifest, ids=[(1, 2)], files=[each.name for each in files], count=2))
    with monkeypatch.context() as patch:
        patch.setattr("spanmq_spark.jobs.manifests.run.write_manifest", killed)
        with pytest.raises(KeyboardInterrupt), run_on(database, lake, "orders", "archive"):
            pass
    assert not half.exists()
    # Delta has a commit of that number, without the files.
    with run_on(database, lake, "orders", "archive") as third:
        assert third.state.ids_in(None) == []
        newer = begun(third, "delta")
        end(lake, committed(database, lake, newer, written(database, lake, newer)))
    assert read_state(database, lake, "orders", "archive").ids_in(None) == [(1, 2)]
    assert sorted(FORMATS["delta"](database, lake, "archive").read("orders")) == sorted(
        files_of(lake, "orders")
    )
    assert len(files_of(lake, "orders")) == 2


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_files_of_another_attempt_of_a_task_are_deleted(
    client: Client, database: str, tmp_path: Path, kind: str
) -> None:
    lake = lake_at(tmp_path)
    with run_on(database, lake, "orders", "archive") as run:
        manifest = begun(run, kind)
        # Of one that failed or was too slow, and of the one that Spark took.
        written(database, lake, manifest)
        files = written(database, lake, manifest)
        end(lake, committed(database, lake, manifest, files))
    assert sorted(lake.sizes("archive/queue=orders")) == sorted(each.name for each in files)


def test_one_run_at_a_time_of_each_queue(
    client: Client, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.queues.create("others")
    lake = lake_at(tmp_path)
    monkeypatch.setattr("spanmq_spark.jobs.lake_lock.WAIT_SECONDS", 0.01)

    def run(queue: str) -> AbstractContextManager[ManifestRun]:
        return run_on(database, lake, queue, "archive")

    refused = pytest.raises(PipelineError, match="another export of queue orders is writing into")
    with run("orders"), run("others"), refused, run("orders"):
        pass
    (tmp_path / "something").touch()
    with pytest.raises(PipelineError, match="in use: it has files that no export made"), run("orders"):
        pass
