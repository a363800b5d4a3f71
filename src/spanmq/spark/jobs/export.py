"""export: the archive of a queue, or its dead letters, into Parquet files, a Delta or an Iceberg table, once.

Not by a position in the archive: messages are archived in any order, and a long transaction shows what it
archived long after. The lake's manifest has the ids that are exported; what the table has beside them is
next.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark import rows
from spanmq.spark.cause import clear_errors
from spanmq.spark.jobs import delta, iceberg
from spanmq.spark.jobs.compact import compact
from spanmq.spark.jobs.lake_folder import alone, application, begun, put_in_place, staging_of
from spanmq.spark.jobs.lake_table import LakeTable, check_format, table_named
from spanmq.spark.jobs.manifest import (
    Exported,
    Manifest,
    Ranges,
    formats,
    read_exported,
    union,
    within,
    write_exported,
    write_manifest,
)
from spanmq.spark.jobs.recorded import recorded
from spanmq.spark.options import Options
from spanmq.spark.reader import extent_of, queue_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The seconds between two exports with `follow`. Each writes a file for each day and task: few large files are
# better than many.
EVERY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did; with a dry run, what one would do. The checksum is of the bodies' MD5 sums."""

    queue: str
    table: str
    to: str
    format: str
    exported: int
    exported_before: int
    files: int
    checksum: str
    seconds: float
    is_dry_run: bool


@dataclass(frozen=True, slots=True)
class _Export:
    """What one export is about."""

    spark: SparkSession
    options: Options
    table: LakeTable
    extent: rows.Range
    lake: Path
    format: str
    source: str


@recorded("export", lambda given: given["to"])
def export(
    spark: SparkSession,
    dsn: str,
    queue: str,
    to: str | Path,
    *,
    table: str = "archive",
    format: str = "parquet",  # noqa: A002 - Spark's word
    dry_run: bool = False,
) -> ExportReport:
    """Write the rows of a queue's table that the lake lacks, and verify them against the database.

    The table is `archive` or `dead_letters`, the format `parquet`, `delta` or `iceberg`. Files lie in
    `to`/table/queue=…/day=…, by the day on which a message was archived or died, and count when a manifest in
    `to`/_spanmq names them; with the others, when a commit does. After a kill, the next run removes the
    remains and continues. Raises PipelineError where the folder is in use, or what was written is not what
    the database holds.
    """
    began = time.monotonic()
    check_format(format)
    of_table, lake = table_named(table), Path(to)
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        extent = extent_of(server, queue, table)
        cuts = rows.cut(server, queue, table)
        source = rows.identity(server)
    options = Options(dsn=dsn, queue=queue, table=table)
    this = _Export(spark, options, of_table, extent, lake, format, source)
    with alone(lake, dry_run=dry_run), clear_errors():
        before = read_exported(lake, queue, table) if dry_run else begun(lake, queue, table, dsn)
        _check(this, before)
        ranges = missing(extent, cuts, before.ids)
        count, files, checksum = 0, 0, 0
        if ranges:
            frame = _frame(this, ranges)
            if dry_run:
                count = frame.count()
            else:
                count, files, checksum = _write(this, frame, before)
        if not dry_run:
            # From now on retention may delete what is verified, and nothing else.
            after = read_exported(lake, queue, table)
            rows.note_export(dsn, queue, str(lake.resolve()), after.ids, table)
            write_exported(lake, after)
    return ExportReport(
        queue=queue,
        table=table,
        to=str(lake),
        format=format,
        exported=count,
        exported_before=sum(b - a + 1 for a, b in before.ids),
        files=files,
        checksum=f"{checksum:x}",
        seconds=time.monotonic() - began,
        is_dry_run=dry_run,
    )


def follow(
    spark: SparkSession,
    dsn: str,
    queue: str,
    to: str | Path,
    *,
    table: str = "archive",
    format: str = "parquet",  # noqa: A002 - Spark's word
    every: float = EVERY_SECONDS,
    compact_every: float | None = None,
    wait: Callable[[float], bool],
) -> Iterator[ExportReport]:
    """Export again and again, and yield the report of each export that had something.

    Between two of them `wait` is called with `every` (seconds), and ends it by True: an event's wait will do.
    After an export the small files of the lake are joined, if that was `compact_every` seconds ago.
    """
    if every <= 0:
        raise InvalidArgumentError(f"every must be more than 0 seconds, got {every:g}")
    if compact_every is not None and compact_every <= 0:
        raise InvalidArgumentError(f"compact_every must be more than 0 seconds, got {compact_every:g}")
    compacted_at = time.monotonic()
    while True:
        report = export(spark, dsn, queue, to, table=table, format=format)
        if report.exported:
            yield report
        is_time = compact_every is not None and time.monotonic() - compacted_at >= compact_every
        if is_time and report.exported + report.exported_before:
            compact(to, report.queue, table=table)
            compacted_at = time.monotonic()
        if wait(every):
            return


def _check(this: _Export, before: Exported) -> None:
    """Refuse a folder that holds something else under the same name."""
    if before.number and before.source != this.source:
        raise PipelineError(
            f"{this.lake} holds the queue {this.options.queue} of another database",
            hint="Use another folder; or, if this is that database, moved: spanmq pipeline moved.",
            queue=this.options.queue,
        )
    others = formats(this.lake, this.table.name) - {this.format}
    if others:
        raise PipelineError(
            f"the folder {this.lake} is in use: its table {this.table.name} is of format {others.pop()}, "
            f"not {this.format}",
            hint="Use another folder, or its format.",
        )


def missing(extent: rows.Range, cuts: Ranges, exported: Ranges) -> list[rows.Range]:
    """Return the ranges of ids, of those of `cuts`, that may hold rows which are not exported."""
    found = []
    for a, b in cuts:
        have = within(exported, a, b)
        if have == [(a, b)]:
            continue
        pieces = ",".join(f"[{low},{high}]" for low, high in have)
        conditions = [extent.where] if extent.where else []
        if have:
            conditions.append(f"not ('{{{pieces}}}'::int8multirange @> {extent.key})")
        found.append(replace(extent, first=a, last=b, where=" and ".join(conditions)))
    return found


def _frame(this: _Export, ranges: list[rows.Range]) -> DataFrame:
    """Return the rows of these ranges, a task for each."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    options, columns = this.options, this.table.columns
    schema = StructType([StructField(each.name, each.kind) for each in columns])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                yield from rows.read(options, columns, [ranges[number]], arrow)

    numbers = this.spark.range(0, len(ranges), 1, max(1, len(ranges))).withColumnRenamed("id", "number")
    return numbers.mapInArrow(read, schema)


def _write(this: _Export, frame: DataFrame, before: Exported) -> tuple[int, int, int]:
    """Write, verify, put in place, and write the manifest: in this order."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema

    staging = staging_of(this.lake, this.options.queue, this.table.name) / uuid.uuid4().hex[:12]
    by_day = frame.withColumn("day", f.date_format(this.table.at, "yyyy-MM-dd"))
    folders = delta.PARTITIONS
    if this.format == "iceberg":
        # Its files have all columns, also those that Spark leaves to the names of folders.
        folders = ["of_queue", "of_day"]
        by_day = by_day.withColumns(dict(zip(folders, (by_day.queue, by_day.day), strict=True)))
    with _readable_times(this.spark):
        by_day.write.partitionBy(*folders).parquet(str(staging))
    # With its schema, for there may be nothing.
    written = this.spark.read.schema(by_day.schema).parquet(str(staging))
    ids = _ids(written, this.table.id)
    count, checksum = _tally(written)
    if count == 0:
        shutil.rmtree(staging)
        return 0, 0, 0
    _verify(this, ids, count, checksum)
    files = put_in_place(this.lake, this.table.name, staging)
    manifest = Manifest(
        number=before.number + 1,
        queue=this.options.queue,
        source=this.source,
        ids=ids,
        files=files,
        count=count,
        checksum=checksum,
        table=this.table.name,
        format=this.format,
    )
    if this.format != "parquet":
        write_manifest(this.lake, manifest, is_pending=True)
        schema = to_arrow_schema(by_day.drop("of_queue", "of_day").schema, timezone="UTC")
        names = [str(Path(name).relative_to(this.table.name)) for name in files]
        given = (this.lake / this.table.name, application(manifest), manifest.number, names, schema)
        if this.format == "delta":
            delta.commit(*given)
        else:
            iceberg.commit(this.options.dsn, *given)
    write_manifest(this.lake, manifest)
    shutil.rmtree(staging)
    return count, len(files), checksum


@contextlib.contextmanager
def _readable_times(spark: SparkSession) -> Iterator[None]:
    """Make Spark write times in Delta's type: Spark's default is a type that Parquet has deprecated."""
    name = "spark.sql.parquet.outputTimestampType"
    before = spark.conf.get(name)
    spark.conf.set(name, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _tally(written: DataFrame) -> tuple[int, int]:
    """Count the rows and add up the MD5 sums of their bodies (60 bits of each)."""
    row = written.selectExpr(
        "count(*)",
        "coalesce(sum(cast(conv(substr(md5(cast(body as binary)), 1, 15), 16, 10) as decimal(38, 0))), 0)",
    ).first()
    assert row is not None
    return int(row[0]), int(row[1])


def _ids(written: DataFrame, name: str) -> Ranges:
    """Return the ids that were written, as ranges: within one, id minus row number is constant."""
    islands = written.selectExpr(
        f"{name} as id",
        f"{name} div 65536 as part",
        f"{name} - row_number() over (partition by {name} div 65536 order by {name}) as island",
    )
    found = islands.groupBy("part", "island").agg({"id": "min", "*": "count"})
    pieces = [(row["min(id)"], row["count(1)"]) for row in found.collect()]
    return union([], [(first, first + n - 1) for first, n in pieces])


def _verify(this: _Export, ids: Ranges, count: int, checksum: int) -> None:
    """Compare what was written with what the database has under the same ids."""
    # A task for each hundred thousand ids or thousand ranges.
    parts: list[Ranges] = [[]]
    size = 0
    for first, last in ids:
        if size > rows.ROWS_PER_PARTITION or len(parts[-1]) >= 1000:
            parts.append([])
            size = 0
        parts[-1].append((first, last))
        size += last - first + 1
    dsn, extent = this.options.dsn, this.extent

    def tally(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                n, total = rows.tally(dsn, extent, parts[number])
                yield pyarrow.RecordBatch.from_pydict({"n": [n], "total": [str(total)]})

    found = this.spark.range(0, len(parts), 1, len(parts)).withColumnRenamed("id", "number")
    tallies = found.mapInArrow(tally, "n long, total string").collect()
    there = (sum(row.n for row in tallies), sum(int(row.total) for row in tallies))
    if there != (count, checksum) or sum(last - first + 1 for first, last in ids) != count:
        raise PipelineError(
            f"queue {this.options.queue}: {count} rows were written with checksum {checksum:x}, "
            f"its {this.table.name} have {there[0]} with {there[1]:x}",
            hint="Nothing of it counts. If retention deleted meanwhile, run it again.",
            queue=this.options.queue,
        )
