"""Files of a lake with large bodies: what writes, reads and joins them holds one row group at a time."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from spanmq.spark.jobs import parquet
from spanmq.spark.jobs.lake import lake_at

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("body", pyarrow.string())])


def test_row_groups_are_bounded_by_bytes_and_no_batch_has_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "BYTES_MAX", 10_000)
    lake = lake_at(tmp_path)
    for name in ("a", "b"):
        with parquet.Writer.opened(lake, name, SCHEMA) as writer:
            for i in range(40):
                writer.add(pyarrow.record_batch([[i], [str(i) * 1_000]], schema=SCHEMA))
    parquet.join(lake, ["a", "b"], "c")
    for name, rows in (("a", 40), ("c", 80)):
        groups = pyarrow.parquet.read_metadata(tmp_path / name).num_row_groups
        sizes = [(batch.num_rows, batch.nbytes) for batch in parquet.read(lake, [name], ["id", "body"])]
        assert sum(n for n, _ in sizes) == rows
        assert len(sizes) == groups > 3
        assert max(size for _, size in sizes) < 40_000
    # A condition skips what can have none.
    found = list(parquet.read(lake, ["c"], ["id"], pyarrow.compute.field("id") == 39))
    assert sum(batch.num_rows for batch in found) == 2
