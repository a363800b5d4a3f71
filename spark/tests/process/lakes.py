"""What is in a lake, as readers that are not Spark find it."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from spanmq.client import Client
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.manifests.store import files_of

Row = dict[str, Any]


def archive(client: Client, quantity: int) -> None:
    client.archive("orders", [message.message_id for message in client.receive("orders", quantity)])


def parquet_rows(lake: Path | str, queue: str = "orders", table: str = "archive") -> list[Row]:
    """Read the files that the manifests name."""
    place = lake_at(lake)
    return [row for name in files_of(place, queue, table) for row in file_of(place, name).to_pylist()]


def file_of(lake: Lake, name: str, columns: list[str] | None = None) -> pyarrow.Table:
    """Read a file."""
    with lake.reader(name) as opened:
        return pyarrow.parquet.ParquetFile(opened).read(columns)


def parquet_bodies(lake: Path | str) -> list[Any]:
    return sorted(json.loads(row["body"]) for row in parquet_rows(lake))


def leftovers(lake: Path | str) -> set[str]:
    """Return the files that no manifest names."""
    place = lake_at(lake)
    return {name for name in place.sizes("") if name.endswith(".parquet")} - set(files_of(place, "orders"))


def delta_rows(lake: Path | str) -> list[Row]:
    deltalake = pytest.importorskip("deltalake")
    rows: list[Row] = deltalake.DeltaTable(f"{lake}/archive").to_pyarrow_table().to_pylist()
    return rows


def compacted(lake: Path | str) -> tuple[int, int]:
    """Join the small files of a Delta table, as the guide does; return how many were replaced, and by how many."""
    deltalake = pytest.importorskip("deltalake")
    done = deltalake.DeltaTable(f"{lake}/archive").optimize.compact()
    return int(done["numFilesRemoved"]), int(done["numFilesAdded"])


def delta_bodies(lake: Path | str) -> list[Any]:
    return sorted(json.loads(row["body"]) for row in delta_rows(lake))


def iceberg_bodies(dsn: str, lake: Path) -> list[Any]:
    """Read an Iceberg table by its catalogue, in the database."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    url = dsn.replace("postgresql://", "postgresql+psycopg://", 1)
    with catalogs.load_catalog("spanmq", type="sql", uri=url) as catalog:
        found = catalog.load_table((lake.name, "archive")).scan().to_arrow()
    return sorted(json.loads(body) for body in found.column("body").to_pylist())


def bodies(lake: Path, kind: str, dsn: str) -> list[Any]:
    if kind == "iceberg":
        return iceberg_bodies(dsn, lake)
    return delta_bodies(lake) if kind == "delta" else parquet_bodies(lake)
