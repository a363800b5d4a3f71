"""Exports without a JVM: what is written is compared with what the server sent, in the same read."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest
from spark.tests.test_goes_back import SESSION, run

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq_spark import rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.export import export
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import known_table
from spanmq_spark.jobs.manifests.store import files_of

BODIES = [None, "", "ü", {"a": [1, 2.50, None]}, "x" * 100_000, 12345678901234567890]


def bodies(lake: Path) -> list[Any]:
    names = files_of(lake_at(lake), "orders")
    return [
        json.loads(body)
        for batch in parquet.read(lake_at(lake), names, ["body"])
        for body in batch.column(0).to_pylist()
    ]


@pytest.mark.parametrize("has_crc", [True, False])
@pytest.mark.parametrize("table", ["archive", "dead_letters"])
def test_what_a_file_has_is_what_the_server_sent(
    client: Client,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    *,
    has_crc: bool,
) -> None:
    with psycopg.connect(database) as connection:
        has_crc = has_crc and connection.info.server_version >= rows.CRC_SINCE
    monkeypatch.setattr(rows, "has_crc", lambda _: has_crc)
    ids = client.send_batch("orders", BODIES)
    if table == "archive":
        client.archive("orders", ids)
    else:
        client.reject(client.receive("orders", 10), "bad")
    report = export(SESSION, database, "orders", tmp_path, table=table)
    kind = rows.crc_of if has_crc else rows.md5_of
    with psycopg.connect(database) as connection:
        texts = connection.execute("select message::text from spanmq.dead_letters_between('orders', 1, 99)")
        if table == "archive":
            texts = connection.execute("select message::text from pgmq.a_orders")
        assert report.checksum == f"{sum(kind(text.encode()) for (text,) in texts):x}"
    assert report.exported == len(BODIES)


def test_file_that_differs_from_what_was_read_is_not_exported(
    client: Client, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = parquet.FileWriter.add

    def changed(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        texts = ["7" if text == "8" else text for text in batch.column("body").to_pylist()]
        place = batch.schema.get_field_index("body")
        return batch.set_column(place, batch.schema.field(place), pyarrow.array(texts))

    client.archive("orders", client.send_batch("orders", range(10)))
    for change in (changed, lambda batch: batch.slice(1)):
        with monkeypatch.context() as patch:
            patch.setattr(
                parquet.FileWriter, "add", lambda self, batch, change=change: add(self, change(batch))
            )
            with pytest.raises(
                PipelineError, match=r"queue orders: 10 rows with checksum \w+ were read, ids 1 to 10"
            ):
                run(database, tmp_path, "parquet")
    assert bodies(tmp_path) == []
    assert run(database, tmp_path, "parquet").exported == 10
    assert bodies(tmp_path) == list(range(10))


# The ends of what Python, PostgreSQL and Parquet share, and a time before 1970.
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
]


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_rows_of_the_first_and_the_last_moment_are_exported(
    client: Client, database: str, tmp_path: Path, kind: str
) -> None:
    client.archive("orders", client.send_batch("orders", range(len(TIMES))))
    with psycopg.connect(database, autocommit=True) as connection:
        for n, time in enumerate(TIMES, 1):
            connection.execute("update pgmq.a_orders set archived_at = %s where msg_id = %s", [time, n])
    assert run(database, tmp_path, kind).exported == len(TIMES)
    lake = lake_at(tmp_path)
    names = known_table(database, lake, "archive").read("orders")
    found = [
        at.replace(tzinfo=UTC)
        for batch in parquet.read(lake, names, ["archived_at"])
        for at in batch.column(0).to_pylist()
    ]
    assert sorted(found) == TIMES


def test_summary_that_a_killed_export_had_begun_is_deleted(
    client: Client, database: str, tmp_path: Path
) -> None:
    client.archive("orders", client.send_batch("orders", [1]))
    run(database, tmp_path, "parquet")
    half = tmp_path / "_spanmq" / "archive" / "orders.exported.0f0f0f0f.draft"
    other = half.with_name("orders2.exported.0f0f0f0f.draft")
    half.touch()
    other.touch()
    client.archive("orders", client.send_batch("orders", [2]))
    run(database, tmp_path, "parquet")
    assert (half.exists(), other.exists()) == (False, True)
