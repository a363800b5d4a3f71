"""export: the archive of a queue, or its dead letters, into Parquet files, a Delta or an Iceberg table, once.

Not by a position in the archive: messages are archived in any order, and a long transaction shows what it
archived long after. The lake's manifest has the ids that are exported; what the table has beside them is
next.
"""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow
from pyspark.sql import DataFrame, SparkSession

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark import calls, rows
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.ducklake import run as ducklake_run
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_format import BY_MANIFEST, FORMATS, check_format
from spanmq_spark.jobs.lake_lock import LakeState, Seen, check_format_of
from spanmq_spark.jobs.lake_table import LakeTable, table_named
from spanmq_spark.jobs.manifests import run as manifest_run
from spanmq_spark.jobs.manifests.store import Manifest
from spanmq_spark.jobs.parquet import REPORT
from spanmq_spark.jobs.ranges import BLOCK_BITS, Ranges, size_of, within
from spanmq_spark.jobs.recorded import recorded
from spanmq_spark.jobs.table_format import LakeFormat
from spanmq_spark.options import Options
from spanmq_spark.reader import extent_of, queue_named

__all__ = ["ExportReport", "FollowReport", "export", "follow"]

# The seconds between two exports with `follow`. Each writes a file for each day and task: few large files are
# better than many.
EVERY_SECONDS: Final = 60.0
# The seconds after which an export compares all ids with the database.
COMPARE_SECONDS: Final = 86_400.0
# A session, or what returns one: it is called when there are rows to export.
Session = SparkSession | Callable[[], SparkSession]
# The only run on a queue's table of a lake.
ExportRun = manifest_run.ManifestRun | ducklake_run.CatalogueRun


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The result of an export, or the expected one of a dry run. `checksum` is of the bodies (docs/internals/spark.md).

    From the `table` of a `queue`, `exported` rows, after `exported_before` of earlier runs, went `to` a lake of this
    `format`, in `files` files and `seconds` seconds; `is_dry_run`: they did not.
    """

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
class FollowReport:
    """The result of repeated exports: the number of those with new rows, and of rows."""

    queue: str
    table: str
    to: str
    exports: int
    exported: int


@dataclass(frozen=True, slots=True)
class _Export:
    """The parts of one export."""

    spark: Session
    options: Options
    table: LakeTable
    extent: rows.Range
    lake: Lake
    format: str
    source: str
    has_crc: bool

    @property
    def session(self) -> SparkSession:
        """Spark's session, which may start now."""
        return self.spark() if callable(self.spark) else self.spark

    @property
    def files(self) -> LakeFormat:
        """The table of the lake, in its format."""
        return FORMATS[self.format](self.options.dsn, self.lake, self.table.name)


@recorded("export", lambda arguments: arguments["to"])
def export(
    spark: Session,
    dsn: str,
    queue: str,
    to: str | Path,
    *,
    table: str = "archive",
    format: str = "parquet",  # noqa: A002 - Spark's word
    dry_run: bool = False,
) -> ExportReport:
    """Write the rows of a `queue` that the lake lacks, and verify them against the database; return what it did.

    `spark` is the session, or a function that returns one, called only if there are rows to export; `dsn` is the
    database. `table` is "archive" or "dead_letters", `format` "parquet", "delta"
    or "iceberg", and `to` a folder or the URI of an object store. With `dry_run` the rows are only counted. Files lie
    in `to`/table/queue=…/day=…, by the day on which a message was archived or died, and count when a manifest in
    `to`/_spanmq names them; with the others, when a commit does. Killed at any instant, the next run removes what was
    left and goes on. Raises PipelineError where the folder is in use, another export into it is under way, or what was
    written is not what the database holds, InvalidArgumentError for an unknown table or format, and QueueNotFoundError.
    """
    began = time.monotonic()
    check_format(format)
    of_table, lake = table_named(table), lake_at(to)
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        extent = extent_of(server, queue, table)
        source = rows.identity(server, queue)
        since = rows.open_since(server, queue) if table == "archive" else ""
        has_crc = rows.has_crc(server)
    options = Options(dsn=dsn, queue=queue, table=table)
    this = _Export(spark, options, of_table, extent, lake, format, source, has_crc)
    runs = manifest_run if format in BY_MANIFEST else ducklake_run
    check_format_of(lake, table, format)
    with clear_errors():
        if dry_run:
            before = runs.look(dsn, lake, queue, table)
            exported_before = before.count()
            files = checksum = 0
            with rows.connected(dsn) as server:
                count = sum(rows.count(server, ids) for ids in _possible_ranges(this, before))
        else:
            with runs.run_on(dsn, lake, queue, table) as run:
                before = run.state
                exported_before = before.count()
                seen = Seen(since, time.time() if _is_whole(before.seen) else before.seen.compared_at)
                ranges = _ranges(this, before)
                count, files, checksum = _write(this, ranges, run, seen) if ranges else (0, 0, 0)
                if not files:
                    run.note(seen)
    return ExportReport(
        queue=queue,
        table=table,
        to=str(to),
        format=format,
        exported=count,
        exported_before=exported_before,
        files=files,
        checksum=f"{checksum:x}",
        seconds=time.monotonic() - began,
        is_dry_run=dry_run,
    )


@recorded("export", lambda arguments: arguments["to"])
def follow(
    spark: Session,
    dsn: str,
    queue: str,
    to: str | Path,
    *,
    table: str = "archive",
    format: str = "parquet",  # noqa: A002 - Spark's word
    every: float = EVERY_SECONDS,
    wait: Callable[[float], bool],
    progress: Callable[[ExportReport], None] = lambda _: None,
) -> FollowReport:
    """Export again and again, and pass the report of each export that had something to `progress`; return the sums.

    `spark`, `dsn`, `queue`, `to`, `table` and `format` are those of `export`, and so is what it raises. Between two of
    them `wait` is called with `every` (seconds), and ends it by True: an event's wait will do. All of it is one run in
    the database's records. Raises InvalidArgumentError for a time that is not above 0.
    """
    if every <= 0:
        raise InvalidArgumentError(f"every must be more than 0 seconds, got {every:g}")
    # Without its decorator: all exports are one run in the records.
    export_once: Callable[..., ExportReport] = inspect.unwrap(export)
    exports = exported = 0
    while True:
        report = export_once(spark, dsn, queue, to, table=table, format=format)
        if report.exported:
            exports, exported = exports + 1, exported + report.exported
            progress(report)
        if wait(every):
            return FollowReport(report.queue, table, str(to), exports, exported)


def _is_whole(seen: Seen) -> bool:
    """Return whether all ids are to be compared with the database, not only those of rows that are new by their time.

    Once a day: rows that were inserted by hand may have any time.
    """
    return not seen.since or not 0 <= time.time() - seen.compared_at < COMPARE_SECONDS


def _ranges(this: _Export, before: LakeState) -> list[rows.Range]:
    """Return ranges of ids that hold rows which are not exported, or none if there are no such rows.

    Gaps between ids look like ids that are not exported: so they are looked up, before Spark starts for nothing.
    """
    ranges = _possible_ranges(this, before)
    with rows.connected(this.options.dsn) as server:
        # New rows are rather at the end.
        return ranges if any(rows.has_any(server, ids) for ids in reversed(ranges)) else []


def _possible_ranges(this: _Export, before: LakeState) -> list[rows.Range]:
    """Return ranges of ids that may hold rows which are not exported."""
    with rows.connected(this.options.dsn) as server:
        if _is_whole(before.seen):
            cut = calls.read_ranges(before.queue, before.table, rows.ROWS_PER_PARTITION)
            whole = server.admin.run(cut)
            return missing(this.extent, whole, before.ids_in(None))
        archive = this.extent.source(0, 0)
        blocks = rows.recent_blocks(server, archive, before.seen.since, BLOCK_BITS)
        ids = before.ids_in([block for block, *_ in blocks])
        blocks = rows.recent_blocks(server, archive, before.seen.since, BLOCK_BITS, ids)
    cuts: Ranges = []
    size = rows.ROWS_PER_PARTITION
    for _, low, high, n in blocks:
        if size + n > rows.ROWS_PER_PARTITION:
            cuts.append((low, high))
            size = 0
        cuts[-1] = (cuts[-1][0], high)
        size += n
    return missing(this.extent, cuts, ids, rows.recent(before.seen.since))


def missing(extent: rows.Range, cuts: Ranges, exported: Ranges, where: str = "") -> list[rows.Range]:
    """Return the ranges of ids, of those of `cuts`, that may hold rows which are not exported, and meet a condition."""
    ranges = []
    for a, b in cuts:
        have = within(exported, a, b)
        if have == [(a, b)]:
            continue
        others = f"not {rows.in_ranges(have, extent.key)}" if have else ""
        ranges.append(replace(extent, first=a, last=b, where=" and ".join(filter(None, (where, others)))))
    return ranges


def _frame(this: _Export, ranges: list[rows.Range], manifest: Manifest) -> DataFrame:
    """Return the files to which the rows of these ranges were written, a task for each range."""
    options, table = this.options, this.table
    into, has_crc = this.files, this.has_crc

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                prefix = f"{manifest.token}-{number:05}"
                yield from _written(options, table, ranges[number], into, prefix, has_crc=has_crc)

    numbers = this.session.range(0, len(ranges), 1, max(1, len(ranges))).withColumnRenamed("id", "number")
    return numbers.mapInArrow(read, f"{REPORT}, token string")


def _written(
    options: Options, table: LakeTable, extent: rows.Range, into: LakeFormat, prefix: str, *, has_crc: bool
) -> Iterator[pyarrow.RecordBatch]:
    """Write the rows of a range into files; yield what each has, as REPORT, and a token that proves it.

    Raises PipelineError if the files, read back, have not the rows that the server sent, by its own checksums.
    """
    tokens: list[str] = []
    sent = (0, 0)
    columns = rows.checked(table.columns, has_crc=has_crc)
    schema = table.schema.append(pyarrow.field(rows.CHECK, pyarrow.int64()))

    def read() -> Iterator[pyarrow.RecordBatch]:
        nonlocal sent
        for batch in rows.read(options, columns, [replace(extent, has_text=True)], schema, tokens):
            # In Python: a sum of a column may be more than 64 bits.
            sent = sent[0] + batch.num_rows, sent[1] + sum(filter(None, batch.column(rows.CHECK).to_pylist()))
            yield batch

    checksum = rows.crc_of if has_crc else rows.md5_of
    files = parquet.write(into.lake, table, options.queue, prefix, read(), into.file_schema, checksum)
    there = sum(file["rows"] for file in files), sum(int(file["checksum"]) for file in files)
    if sent != there:
        raise PipelineError(
            f"queue {options.queue}: {sent[0]} rows with checksum {sent[1]:x} were read, ids {extent.first} to"
            f" {extent.last}, and their files have {there[0]} with {there[1]:x}",
            hint="The export has no effect. Run it again.",
            queue=options.queue,
        )
    for file in files:
        yield pyarrow.RecordBatch.from_pylist([{**file, "token": tokens[0]}])


def _write(this: _Export, ranges: list[rows.Range], run: ExportRun, seen: Seen) -> tuple[int, int, int]:
    """Write, verify, and commit: in this order."""
    manifest = run.begin(this.source, this.format)
    reports = [row.asDict() for row in _frame(this, ranges, manifest).collect()]
    files = parquet.files_of(reports)
    manifest = replace(
        manifest,
        ids=parquet.ids_of(reports),
        files=[file.name for file in files],
        count=sum(file.rows for file in files),
        checksum=sum(int(row["checksum"]) for row in reports),
    )
    if not files:
        run.drop(manifest)
        return 0, 0, 0
    verify(this, manifest)
    run.commit(manifest, files, sorted({row["token"] for row in reports}), seen)
    return manifest.count, len(files), manifest.checksum


def verify(this: _Export, manifest: Manifest) -> None:
    """Raise PipelineError unless the files of an export have each id once."""
    if (n := size_of(manifest.ids)) != manifest.count:
        raise PipelineError(
            f"queue {this.options.queue}: {manifest.count} rows were written, with {n} ids",
            hint="The export has no effect. Run it again.",
            queue=this.options.queue,
        )
