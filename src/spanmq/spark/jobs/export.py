"""export: the archive of a queue into Parquet files, incremental, each message once.

Not by a position in the archive: messages are archived in any order, and a long transaction shows what it
archived long after. The lake's manifest has the ids that are exported; what the archive has beside them is
next.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow

from spanmq.errors import PipelineError
from spanmq.spark import rows
from spanmq.spark.column import COLUMNS
from spanmq.spark.jobs.manifest import FOLDER, Manifest, Ranges, read_manifests, union, within, write_manifest
from spanmq.spark.options import Options
from spanmq.spark.reader import queue_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: Final = COLUMNS["archive"]


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export did; with a dry run, what one would do. The checksum is of the bodies' MD5 sums."""

    queue: str
    to: str
    exported: int
    exported_before: int
    files: int
    checksum: str
    seconds: float
    is_dry_run: bool


def export(
    spark: SparkSession, dsn: str, queue: str, to: str | Path, *, dry_run: bool = False
) -> ExportReport:
    """Write what the archive of a queue has and the lake hasn't, and verify it against the database.

    Files lie in `to`/queue=…/day=…, by the day on which a message was archived, and count when a manifest
    in `to`/_spanmq names them. Killed at any instant, the next run removes what was left and goes on. Raises
    PipelineError where the folder is in use, or what was written is not what the archive holds.
    """
    began = time.monotonic()
    lake = Path(to)
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        table = rows.view(server, queue, "a")
        first, last = rows.bounds(server, table)
        source = rows.identity(server)
    with _alone(lake, dry_run=dry_run):
        manifests = read_manifests(lake, queue)
        if manifests and manifests[-1].source != source:
            raise PipelineError(
                f"{lake} holds the queue {queue} of another database", hint="Use another folder.", queue=queue
            )
        before = manifests[-1].ids if manifests else []
        options = Options(dsn=dsn, queue=queue, table="archive")
        ranges = missing(queue, table, first, last, before)
        count, files, checksum = 0, 0, 0
        if not dry_run:
            _sweep(lake, queue, manifests)
        if ranges:
            frame = _frame(spark, options, ranges)
            if dry_run:
                count = frame.count()
            else:
                count, files, checksum = _write(spark, frame, options, table, lake, source, manifests)
        if not dry_run:
            # From now on retention may delete what is verified, and nothing else.
            held = union(before, []) if count == 0 else read_manifests(lake, queue)[-1].ids
            rows.note_export(dsn, queue, str(lake.resolve()), held)
    return ExportReport(
        queue=queue,
        to=str(lake),
        exported=count,
        exported_before=sum(b - a + 1 for a, b in before),
        files=files,
        checksum=f"{checksum:x}",
        seconds=time.monotonic() - began,
        is_dry_run=dry_run,
    )


def missing(queue: str, table: str, first: int, last: int, exported: Ranges) -> list[rows.Range]:
    """Give the ranges of ids that may hold messages which are not exported."""
    found = []
    for a, b in rows.split(first, last, at_least=1):
        have = within(exported, a, b)
        if have == [(a, b)]:
            continue
        pieces = ",".join(f"[{low},{high}]" for low, high in have)
        where = f"not ('{{{pieces}}}'::int8multirange @> t.msg_id)" if have else ""
        found.append(rows.Range(queue, table, a, b, where=where))
    return found


def _frame(spark: SparkSession, options: Options, ranges: list[rows.Range]) -> DataFrame:
    """Give the rows of these ranges, a task each."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(each.name, each.kind) for each in _COLUMNS])
    arrow = to_arrow_schema(schema, timezone="UTC")

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                yield from rows.read(options, _COLUMNS, [ranges[number]], arrow)

    numbers = spark.range(0, len(ranges), 1, max(1, len(ranges))).withColumnRenamed("id", "number")
    return numbers.mapInArrow(read, schema)


def _write(
    spark: SparkSession,
    frame: DataFrame,
    options: Options,
    table: str,
    lake: Path,
    source: str,
    manifests: list[Manifest],
) -> tuple[int, int, int]:
    """Write, verify, put in place, and write the manifest: in this order."""
    from pyspark.sql import functions as f

    token = uuid.uuid4().hex[:12]
    staging = lake / FOLDER / f"staging-{token}"
    by_day = frame.withColumn("day", f.date_format("archived_at", "yyyy-MM-dd"))
    by_day.write.partitionBy("queue", "day").parquet(str(staging))
    # With its schema, for there may be nothing.
    written = spark.read.schema(by_day.schema).parquet(str(staging))
    ids = _ids(written)
    count, checksum = _tally(written)
    if count == 0:
        shutil.rmtree(staging)
        return 0, 0, 0
    _verify(spark, options, table, ids, count, checksum)
    files = []
    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        target = path.relative_to(staging).parent / f"{token}-{number:05}.parquet"
        (lake / target).parent.mkdir(parents=True, exist_ok=True)
        path.rename(lake / target)
        files.append(str(target))
    last = manifests[-1] if manifests else None
    write_manifest(
        lake,
        Manifest(
            number=last.number + 1 if last else 1,
            queue=options.queue,
            source=source,
            ids=union(last.ids if last else [], ids),
            files=files,
            count=count,
            checksum=checksum,
        ),
    )
    shutil.rmtree(staging)
    return count, len(files), checksum


def _tally(written: DataFrame) -> tuple[int, int]:
    """Count the messages and add up the MD5 sums of their bodies (60 bits of each)."""
    row = written.selectExpr(
        "count(*)",
        "coalesce(sum(cast(conv(substr(md5(cast(body as binary)), 1, 15), 16, 10) as decimal(38, 0))), 0)",
    ).first()
    assert row is not None
    return int(row[0]), int(row[1])


def _ids(written: DataFrame) -> Ranges:
    """Give the ids that were written, as ranges: within one, id less row number is the same."""
    islands = written.selectExpr(
        "message_id",
        "message_id div 65536 as part",
        "message_id - row_number() over (partition by message_id div 65536 order by message_id) as island",
    )
    found = islands.groupBy("part", "island").agg({"message_id": "min", "*": "count"})
    pieces = [(row["min(message_id)"], row["count(1)"]) for row in found.collect()]
    return union([], [(first, first + n - 1) for first, n in pieces])


def _verify(
    spark: SparkSession, options: Options, table: str, ids: Ranges, count: int, checksum: int
) -> None:
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

    def tally(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for number in batch.column("number").to_pylist():
                n, total = rows.tally(options.dsn, table, parts[number])
                yield pyarrow.RecordBatch.from_pydict({"n": [n], "total": [str(total)]})

    found = spark.range(0, len(parts), 1, len(parts)).withColumnRenamed("id", "number")
    tallies = found.mapInArrow(tally, "n long, total string").collect()
    there = (sum(row.n for row in tallies), sum(int(row.total) for row in tallies))
    if there != (count, checksum) or sum(last - first + 1 for first, last in ids) != count:
        raise PipelineError(
            f"queue {options.queue}: {count} messages were written with checksum {checksum:x}, "
            f"the archive has {there[0]} with {there[1]:x}",
            hint="Nothing of it counts. If the archive's retention deleted meanwhile, run it again.",
            queue=options.queue,
        )


def _sweep(lake: Path, queue: str, manifests: list[Manifest]) -> None:
    """Remove what an export left that was killed: files that no manifest names."""
    named = {name for each in manifests for name in each.files}
    for path in (lake / f"queue={queue}").rglob("*.parquet"):
        if str(path.relative_to(lake)) not in named:
            path.unlink()
    for path in (lake / FOLDER).glob("staging-*"):
        shutil.rmtree(path)


@contextlib.contextmanager
def _alone(lake: Path, *, dry_run: bool) -> Iterator[None]:
    """Keep other exports out of the folder; a lock of the kernel, which no death survives."""
    if dry_run:
        yield
        return
    if lake.exists() and not (lake / FOLDER).exists() and any(lake.iterdir()):
        raise PipelineError(
            f"the folder {lake} is in use: it has files that no export made", hint="Name an empty one."
        )
    (lake / FOLDER).mkdir(parents=True, exist_ok=True)
    with (lake / FOLDER / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PipelineError(f"another export is writing into {lake}") from error
        yield
