"""Lakes as other programs read them: rows, types, times and partitions, also after compaction and a new column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow
import pytest
from spark.tests.duck import attached
from tests.documented import programs

from spanmq.client import Client
from spanmq_spark.jobs.export import export
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import known_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")
duckdb = pytest.importorskip("duckdb")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
catalogs = pytest.importorskip("pyiceberg.catalog")

COLUMNS = ("queue", "message_id", "attempt", "archived_at", "group", "body", "day")
# Of two days in UTC, which are one in New York.
AT = [datetime(2026, 1, 30, 23, 59, 59, 999_999, tzinfo=UTC), datetime(2026, 1, 31, tzinfo=UTC)]
BODIES = ['{"ü": [1, 1.10]}', "null", '"two\\nlines"', "12345678901234567890.5"]
Row = tuple[Any, ...]
Reader = Callable[["Lake"], pyarrow.Table]


class Lake:
    """A lake of one format, for those that read it."""

    def __init__(self, folder: Path, dsn: str, spark: SparkSession) -> None:
        self.folder, self.dsn, self.spark = folder, dsn, spark
        self.archive = str(folder / "archive")

    @contextmanager
    def catalogued(self) -> Iterator[Any]:
        """Open the table of the catalogue for a block."""
        url = self.dsn.replace("postgresql://", "postgresql+psycopg://", 1)
        with catalogs.load_catalog("spanmq", type="sql", uri=url) as catalog:
            yield catalog.load_table((self.folder.name, "archive"))

    @property
    def iceberg(self) -> Any:
        """The table, to read it."""
        with self.catalogued() as table:
            return table

    @property
    def files(self) -> list[str]:
        """The files that count: Spark has no jar for Delta and Iceberg here."""
        place = lake_at(self.folder)
        return [f"{self.folder}/{name}" for name in known_table(self.dsn, place, "archive").read("orders")]


def by_spark(lake: Lake) -> pyarrow.Table:
    reader = lake.spark.read.option("basePath", lake.archive)
    # Iceberg's files have the partitions as columns as well.
    return reader.parquet(*lake.files).select(*COLUMNS).toArrow()


def by_pandas(frame: Any) -> pyarrow.Table:
    return pyarrow.Table.from_pandas(frame[list(COLUMNS)], preserve_index=False)


def by_duckdb(source: Any) -> pyarrow.Table:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'America/New_York'")
        relation = (
            connection.read_parquet(source, hive_partitioning=True) if isinstance(source, str) else None
        )
        if relation is None:
            connection.register("source", source)
            relation = connection.table("source")
        return relation.select(*(f'"{name}"' for name in COLUMNS)).to_arrow_table()


def by_ducklake(lake: Lake) -> pyarrow.Table:
    with attached(lake.dsn, lake.folder) as connection:
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        table: pyarrow.Table = connection.execute(f"select {columns} from lake.archive").to_arrow_table()
        return table


READERS: dict[str, dict[str, Reader]] = {
    "parquet": {
        "spark": by_spark,
        "pandas": lambda lake: by_pandas(pandas.read_parquet(lake.archive)),
        "polars": lambda lake: polars.scan_parquet(lake.archive).select(COLUMNS).collect().to_arrow(),
        "duckdb": lambda lake: by_duckdb(f"{lake.archive}/**/*.parquet"),
    },
    "delta": {
        "spark": by_spark,
        "pandas": lambda lake: by_pandas(deltalake.DeltaTable(lake.archive).to_pandas()),
        "polars": lambda lake: polars.read_delta(lake.archive).select(COLUMNS).to_arrow(),
        "duckdb": lambda lake: by_duckdb(deltalake.DeltaTable(lake.archive).to_pyarrow_dataset()),
    },
    "iceberg": {
        "spark": by_spark,
        "pyiceberg": lambda lake: lake.iceberg.scan().to_arrow().select(list(COLUMNS)),
        "pandas": lambda lake: by_pandas(lake.iceberg.scan().to_pandas()),
        "polars": lambda lake: polars.scan_iceberg(lake.iceberg).select(COLUMNS).collect().to_arrow(),
        "duckdb": lambda lake: by_duckdb(lake.iceberg.scan().to_arrow()),
    },
    "ducklake": {"spark": by_spark, "duckdb": by_ducklake},
}


def plain(table: pyarrow.Table) -> list[Row]:
    """Return the rows in the order of their ids; a day may be read as a date."""
    rows = []
    for row in table.to_pylist():
        day = row["day"].isoformat() if isinstance(row["day"], date) else row["day"]
        at = row["archived_at"]
        assert at.tzinfo is not None
        rows.append(
            (*(row[name] for name in COLUMNS[:3]), at.astimezone(UTC), row["group"], row["body"], day)
        )
    return sorted(rows, key=lambda row: row[1])


def archived(dsn: str, first: int) -> list[Row]:
    """Archive a message for each body; return the rows as every reader is to find them."""
    rows = []
    with psycopg.connect(dsn) as connection:
        for number, body in enumerate(BODIES, first):
            at = AT[number % 2]
            headers = '{"x-pgmq-group": "a"}' if number % 3 else None
            [text] = connection.execute(
                "insert into pgmq.a_orders (msg_id, read_ct, enqueued_at, archived_at, vt, message, headers)"
                " values (%s, 2, %s, %s, now(), %s, %s) returning message::text",
                [number, at, at, body, headers],
            ).fetchone() or [None]
            group = "a" if headers else None
            rows.append(("orders", number, 2, at, group, text, at.date().isoformat()))
    return rows


@pytest.mark.parametrize("kind", READERS)
def test_lake_is_read_alike_by_other_programs(
    client: Client,
    spark: SparkSession,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: Any,
) -> None:
    # Polars warns without its own planner.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    # Rows of any time are found.
    monkeypatch.setattr("spanmq_spark.jobs.export.COMPARE_SECONDS", 0.0)
    lake = Lake(tmp_path / f"lake_{kind}", database, spark)

    def check() -> None:
        for name, read in READERS[kind].items():
            found = read(lake)
            assert (name, plain(found)) == (name, rows)
            assert pyarrow.types.is_timestamp(found.schema.field("archived_at").type), name
            assert (found.schema.field("message_id").type, name) == (pyarrow.int64(), name)

    rows = archived(database, 1)
    assert export(spark, database, "orders", lake.folder, format=kind).exported == len(BODIES)
    check()
    rows += archived(database, 1 + len(BODIES))
    assert export(spark, database, "orders", lake.folder, format=kind).exported == len(BODIES)
    check()
    reading, compaction = programs("guides/pipeline")
    if kind == "parquet":
        (tmp_path / "lake").symlink_to(lake.folder)
        monkeypatch.chdir(tmp_path)
        exec(reading, {})
    if kind == "delta":
        before = known_table(database, lake_at(lake.folder), "archive").read("orders")
        exec(compaction.replace("/data/lake", str(lake.folder)), {})
        assert len(known_table(database, lake_at(lake.folder), "archive").read("orders")) == len(before) - 2
        check()
    # A column of the reader's own; exports go on without it.
    if kind == "delta":
        field = deltalake.Field("seen", deltalake.schema.PrimitiveType("boolean"))
        deltalake.DeltaTable(lake.archive).alter.add_columns(field)
    elif kind == "iceberg":
        from pyiceberg.types import BooleanType

        with lake.catalogued() as table, table.update_schema() as update:
            update.add_column("seen", BooleanType())
    elif kind == "ducklake":
        with attached(database, lake.folder) as connection:
            connection.execute("alter table lake.archive add column seen boolean")
    rows += archived(database, 1 + 2 * len(BODIES))
    assert export(spark, database, "orders", lake.folder, format=kind).exported == len(BODIES)
    check()
