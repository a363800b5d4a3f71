"""What Spark's own Parquet writer is told of our columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_bodies_have_no_least_and_greatest(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 10, 1, 1).selectExpr("id as message_id", "to_json(struct(id)) as body")
    frame.write.parquet(str(tmp_path / "lake"))
    [path] = (tmp_path / "lake").glob("*.parquet")
    group = pyarrow.parquet.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i).statistics for i in range(2)}
    assert columns["message_id"].max == 9
    assert columns["body"] is None or not columns["body"].has_min_max
