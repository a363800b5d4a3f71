"""Parquet files of a lake: written by tasks, read back, and read by replays and repairs."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

import pyarrow
import pyarrow.dataset
import pyarrow.parquet
from pyarrow import compute

from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import PARTITIONS, LakeTable, folder_of
from spanmq_spark.jobs.ranges import Ranges, has, union
from spanmq_spark.rows import crc_of

# Held in memory until it is written: rows of a file's row group, and bytes of all files of a task.
ROWS_PER_GROUP: Final = 100_000
BYTES_MAX: Final = 64 << 20
Checksum = Callable[[bytes], int]
# No rows of any file.
NONE: Final[Mapping[str, Ranges]] = MappingProxyType({})
REPORT: Final = "name string, rows long, size long, checksum string, ids string, nulls long"


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A file of a lake; `nulls` of its bodies are null."""

    name: str
    rows: int
    size: int
    nulls: int = 0


def files_of(reports: Iterable[Mapping[str, Any]]) -> list[LakeFile]:
    """Return the files that these rows of REPORT are about."""
    return [LakeFile(row["name"], row["rows"], row["size"], row["nulls"]) for row in reports]


def ids_of(reports: Iterable[Mapping[str, Any]]) -> Ranges:
    """Return the ids that the files of these rows of REPORT have."""
    return union([], [(first, last) for row in reports for first, last in json.loads(row["ids"])])


class FileWriter:
    """Writes one file of a lake, in row groups that do not depend on how small its batches are."""

    def __init__(self, writer: Any, schema: pyarrow.Schema) -> None:
        self._writer = writer
        self._schema = schema
        self._batches: list[pyarrow.RecordBatch] = []
        self._rows = 0
        self.bytes = 0

    @classmethod
    @contextmanager
    def opened(cls, lake: Lake, name: str, schema: pyarrow.Schema) -> Iterator[Self]:
        """Open a new file to write for a block; it is complete when that has ended without an error."""
        # The least and the greatest body help no query, and to find them takes a fifth of the time.
        names = [column for column in schema.names if column != "body"]
        with (
            lake.writer(name) as file,
            pyarrow.parquet.ParquetWriter(file, schema, write_statistics=names) as parquet,
        ):
            writer = cls(parquet, schema)
            yield writer
            writer.flush()

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Write rows, at the latest with the next hundred thousand or 64 MB."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        self.bytes += batch.nbytes
        if self._rows >= ROWS_PER_GROUP or self.bytes >= BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Write a row group of what is held."""
        if self._rows:
            self._writer.write_table(pyarrow.Table.from_batches(self._batches, self._schema), self._rows)
        self._batches, self._rows, self.bytes = [], 0, 0


class FilesWriter:
    """Writes files of a lake that have one schema; each begins with its first rows."""

    def __init__(self, lake: Lake, schema: pyarrow.Schema, stack: ExitStack) -> None:
        self._lake, self._schema, self._stack = lake, schema, stack
        self._writers: dict[str, FileWriter] = {}

    @classmethod
    @contextmanager
    def opened(cls, lake: Lake, schema: pyarrow.Schema) -> Iterator[Self]:
        """Write files for a block; they are complete when that has ended without an error."""
        with ExitStack() as stack:
            yield cls(lake, schema, stack)

    @property
    def names(self) -> list[str]:
        """The files so far."""
        return list(self._writers)

    def add(self, name: str, batch: pyarrow.RecordBatch) -> None:
        """Write rows into a file; all files together hold no more than 64 MB."""
        if not batch.num_rows:
            return
        writers = self._writers
        if name not in writers:
            writers[name] = self._stack.enter_context(FileWriter.opened(self._lake, name, self._schema))
        writers[name].add(batch.select(self._schema.names).cast(self._schema))
        if sum(writer.bytes for writer in writers.values()) > BYTES_MAX:
            max(writers.values(), key=lambda writer: writer.bytes).flush()


def write(
    lake: Lake,
    table: LakeTable,
    queue: str,
    prefix: str,
    batches: Iterator[pyarrow.RecordBatch],
    schema: pyarrow.Schema,
    checksum: Checksum = crc_of,
) -> list[dict[str, Any]]:
    """Write the columns of a schema into a file for each day, read them back, and return what each has, as REPORT.

    A second attempt writes other files: their names begin with `prefix`, which ends with what no other has.
    """
    attempt = uuid.uuid4().hex[:8]
    with FilesWriter.opened(lake, schema) as files:
        for batch in batches:
            for day, part in _by_day(batch, table.at):
                name = f"{folder_of(table.name, queue)}/{PARTITIONS[1]}={day}/{prefix}-{attempt}.parquet"
                files.add(name, part.append_column(PARTITIONS[1], pyarrow.repeat(day, part.num_rows)))
    return [_read_back(lake, name, table.id, checksum) for name in files.names]


def _by_day(batch: pyarrow.RecordBatch, column: str) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    days = compute.cast(batch.column(column), pyarrow.date32())
    unique_days = days.unique()
    for day in unique_days:
        rows = batch if len(unique_days) == 1 else batch.filter(compute.equal(days, day))
        yield day.as_py().isoformat(), rows


def _read_back(lake: Lake, name: str, id_name: str, checksum: Checksum) -> dict[str, Any]:
    """Count a file's rows, add up the checksums of their bodies, and list its ids."""
    ids: list[pyarrow.Array] = []
    total = nulls = 0
    with lake.reader(name) as opened:
        size = opened.seek(0, 2)
        rows = pyarrow.parquet.read_metadata(opened).num_rows
        for batch in _batches(opened, [id_name, "body"]):
            ids.append(batch.column(id_name))
            nulls += batch.column("body").null_count
            bodies = batch.column("body").cast(pyarrow.binary()).to_pylist()
            total += sum(checksum(body) for body in bodies if body is not None)
    ordered = pyarrow.concat_arrays(ids)
    ordered = ordered.take(compute.array_sort_indices(ordered))
    # Within one range, an id is one more than that before it.
    is_first = compute.fill_null(compute.not_equal(compute.pairwise_diff(ordered), 1), True)
    firsts = compute.indices_nonzero(is_first).to_pylist()
    lasts = [*(place - 1 for place in firsts[1:]), rows - 1]
    pieces = list(zip(ordered.take(firsts).to_pylist(), ordered.take(lasts).to_pylist(), strict=True))
    report = {"name": name, "rows": rows, "size": size, "checksum": str(total), "ids": json.dumps(pieces)}
    return {**report, "nulls": nulls}


def statistics(metadata: Any) -> Iterator[tuple[str, int | None, Any, Any]]:
    """Yield what a file's footer has of each column: name, number of nulls, the least and the greatest number or time.

    What is not known is None.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    for place in range(metadata.num_columns):
        name = metadata.schema.column(place).path
        parts = [group.column(place).statistics for group in groups]
        if not all(parts):
            yield name, None, None, None
            continue
        nulls = sum(part.null_count for part in parts)
        ends = [part for part in parts if part.has_min_max and not isinstance(part.min, str | bytes)]
        # A group of nulls alone has no least value.
        if ends and len(ends) == sum(part.num_values > 0 for part in parts):
            yield name, nulls, min(part.min for part in ends), max(part.max for part in ends)
        else:
            yield name, nulls, None, None


def read(
    lake: Lake,
    names: Sequence[str],
    columns: Sequence[str],
    condition: Any = None,
    deleted: Mapping[str, Ranges] = NONE,
) -> Iterator[pyarrow.RecordBatch]:
    """Read columns of files, of the rows that meet Arrow's condition: row groups that have none are skipped.

    `deleted` has the places of the rows of a file that don't count.
    """
    for name in names:
        with lake.reader(name) as opened:
            yield from _batches(opened, columns, condition, deleted.get(name, []))


def _batches(
    opened: Any, columns: Sequence[str], condition: Any = None, deleted: Ranges | None = None
) -> Iterator[pyarrow.RecordBatch]:
    # One row group after the other, which bounds the memory: ParquetFile.iter_batches() holds more of them.
    options = pyarrow.dataset.ParquetFragmentScanOptions(pre_buffer=False)
    fragment = pyarrow.dataset.ParquetFileFormat(default_fragment_scan_options=options).make_fragment(opened)
    # deltalake writes views of strings, which Arrow can't filter.
    views = [
        field.with_type(pyarrow.string()) if field.type == pyarrow.string_view() else field
        for field in fragment.physical_schema
    ]
    schema = pyarrow.schema(views)
    if deleted:
        yield from _rest(fragment, schema, columns, condition, deleted)
        return
    for group in fragment.split_by_row_group(condition):
        yield from group.to_batches(schema, columns=list(columns), filter=condition, use_threads=False)


def _rest(
    fragment: Any, schema: pyarrow.Schema, columns: Sequence[str], condition: Any, deleted: Ranges
) -> Iterator[pyarrow.RecordBatch]:
    """Read the rows whose places are in none of these ranges: the places are those of all rows of a file."""
    place = 0
    for group in fragment.split_by_row_group():
        for batch in group.to_batches(schema, use_threads=False):
            counts = [not has(deleted, n) for n in range(place, place + batch.num_rows)]
            place += batch.num_rows
            part = batch.filter(pyarrow.array(counts))
            yield (part if condition is None else part.filter(condition)).select(list(columns))
