"""What is in a lake, as readers that are not Spark find it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from spanmq.client import Client
from spanmq.spark.jobs.manifest import files_of

Row = dict[str, Any]


def archive(client: Client, quantity: int) -> None:
    client.archive("orders", [message.message_id for message in client.receive("orders", quantity)])


def parquet_rows(lake: Path, queue: str | None = "orders", table: str = "archive") -> list[Row]:
    """Read the files that the manifests name."""
    names = files_of(lake, queue, table)
    return [row for name in names for row in pyarrow.parquet.ParquetFile(lake / name).read().to_pylist()]


def parquet_bodies(lake: Path) -> list[Any]:
    return sorted(json.loads(row["body"]) for row in parquet_rows(lake))


def leftovers(lake: Path) -> set[str]:
    """Return the files that no manifest names."""
    named = set(files_of(lake, "orders"))
    return {str(path.relative_to(lake)) for path in lake.rglob("*.parquet")} - named


def delta_rows(lake: Path) -> list[Row]:
    deltalake = pytest.importorskip("deltalake")
    rows: list[Row] = deltalake.DeltaTable(str(lake / "archive")).to_pyarrow_table().to_pylist()
    return rows


def delta_bodies(lake: Path) -> list[Any]:
    return sorted(json.loads(row["body"]) for row in delta_rows(lake))


def iceberg_bodies(dsn: str, lake: Path) -> list[Any]:
    """Read an Iceberg table by its catalogue, in the database."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    url = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
    with catalogs.load_catalog("spanmq", type="sql", uri=url) as catalog:
        found = catalog.load_table((lake.name, "archive")).scan().to_arrow()
    return sorted(json.loads(body) for body in found.column("body").to_pylist())
