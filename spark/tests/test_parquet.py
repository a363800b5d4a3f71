"""Files of a lake with large bodies: what writes and reads them holds one row group at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake import lake_at

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("body", pyarrow.string())])


def test_row_groups_are_bounded_by_bytes_and_no_batch_has_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BYTES_MAX", 10_000)
    lake = lake_at(tmp_path)
    with parquet.FileWriter.opened(lake, "a", SCHEMA) as writer:
        for i in range(40):
            writer.add(pyarrow.record_batch([[i], [str(i) * 1_000]], schema=SCHEMA))
    groups = pyarrow.parquet.read_metadata(tmp_path / "a").num_row_groups
    sizes = [(batch.num_rows, batch.nbytes) for batch in parquet.read(lake, ["a"], ["id", "body"])]
    assert sum(n for n, _ in sizes) == 40
    assert len(sizes) == groups > 3
    assert max(size for _, size in sizes) < 40_000
    # A condition skips what can have none.
    found = list(parquet.read(lake, ["a"], ["id"], pyarrow.compute.field("id") == 39))
    assert sum(batch.num_rows for batch in found) == 1
