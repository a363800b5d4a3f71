"""compact: the small files of each day of a lake become few large ones."""

from __future__ import annotations

import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset
import pyarrow.parquet

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.jobs import delta
from spanmq.spark.jobs.lake_folder import alone, begun, put_in_place, staging_of
from spanmq.spark.jobs.lake_table import table_named
from spanmq.spark.jobs.manifest import (
    Manifest,
    files_of,
    formats,
    read_exported,
    write_exported,
    write_manifest,
)

SIZE: Final = 128 << 20
ROWS_PER_GROUP: Final = 100_000


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did: `replaced` files by `written` ones."""

    queue: str
    table: str
    lake: str
    format: str
    replaced: int
    written: int
    seconds: float


def compact(lake: str | Path, queue: str, *, table: str = "archive", size: int = SIZE) -> CompactReport:
    """Make files of about `size` bytes of those of a queue that are smaller, within each day.

    Delta commits it, and readers of older versions keep their files for a week. With Parquet files a manifest
    does, and then the files that it replaces are deleted. Killed at any instant, the next run or export
    removes what was left. Raises PipelineError where an export is under way, or the lake has no such queue.
    """
    began = time.monotonic()
    if size < 1:
        raise InvalidArgumentError(f"the size must be 1 byte or more, got {size}")
    folder, table = Path(lake), table_named(table).name
    if not read_exported(folder, queue, table).number:
        raise PipelineError(f"{folder} holds no {table} of queue {queue}", queue=queue)
    [lake_format] = formats(folder, table)
    if lake_format == "iceberg":
        raise PipelineError(
            "PyIceberg compacts no tables", hint="Use the procedure rewrite_data_files of Iceberg for Spark."
        )
    with alone(folder, dry_run=False):
        exported = begun(folder, queue, table)
        if lake_format == "delta":
            replaced, written = delta.compact(folder / table, queue, size)
        else:
            replaced, written = 0, 0
            names = list(_groups(folder, files_of(folder, queue, table), size))
            if names:
                staging = staging_of(folder, queue, table) / uuid.uuid4().hex[:12]
                for number, group in enumerate(names):
                    _join(folder, group, staging / Path(group[0]).parent.relative_to(table), number)
                manifest = Manifest(
                    number=exported.number + 1,
                    queue=queue,
                    source=exported.source,
                    ids=[],
                    files=put_in_place(folder, table, staging),
                    count=0,
                    checksum=0,
                    table=table,
                    format=lake_format,
                    removed=[name for group in names for name in group],
                )
                write_manifest(folder, manifest)
                for name in manifest.removed:
                    (folder / name).unlink()
                shutil.rmtree(staging)
                write_exported(folder, exported.followed_by(manifest))
                replaced, written = len(manifest.removed), len(manifest.files)
    return CompactReport(queue, table, str(folder), lake_format, replaced, written, time.monotonic() - began)


def _groups(lake: Path, files: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield the small files of a day that become one, in the order of their export."""
    days: dict[Path, list[str]] = defaultdict(list)
    for name in files:
        days[Path(name).parent].append(name)
    for names in days.values():
        group: list[str] = []
        total = 0
        for name in names:
            n = (lake / name).stat().st_size
            if n >= size:
                continue
            if group and total + n > size:
                if len(group) > 1:
                    yield group
                group, total = [], 0
            group.append(name)
            total += n
        if len(group) > 1:
            yield group


def _join(lake: Path, names: Sequence[str], folder: Path, number: int) -> None:
    """Write the rows of several files into one, a batch at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [str(lake / name) for name in names]
    # Without partitioning: the folders' names are not columns of the files.
    found = pyarrow.dataset.dataset(paths, schema=pyarrow.parquet.read_schema(paths[0]), partitioning=None)
    pyarrow.dataset.write_dataset(
        found,
        folder,
        format="parquet",
        basename_template=f"{number:05}-{{i}}.parquet",
        existing_data_behavior="overwrite_or_ignore",
        min_rows_per_group=ROWS_PER_GROUP,
        max_rows_per_group=10 * ROWS_PER_GROUP,
        use_threads=False,
    )
    expected = sum(pyarrow.parquet.read_metadata(path).num_rows for path in paths)
    rows = sum(pyarrow.parquet.read_metadata(path).num_rows for path in folder.glob(f"{number:05}-*"))
    if rows != expected:
        raise PipelineError(f"of {expected} rows of {len(names)} files only {rows} were written into one")
