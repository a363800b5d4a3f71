"""compact: the small files of each day of a lake become few large ones."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.cause import clear_errors
from spanmq.spark.jobs import delta
from spanmq.spark.jobs.lake import lake_at
from spanmq.spark.jobs.lake_table import folder_of, table_named
from spanmq.spark.jobs.manifest import files_of, format_of, read_exported, write_manifest
from spanmq.spark.jobs.parquet import join
from spanmq.spark.jobs.run import run_on

SIZE: Final = 128 << 20


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


def compact(
    dsn: str, queue: str, lake: str | Path, *, table: str = "archive", size: int = SIZE
) -> CompactReport:
    """Make files of about `size` bytes of those of a queue that are smaller, within each day.

    Delta commits it, and readers of older versions keep their files for a week. With Parquet files a manifest
    does, and then the files that it replaces are deleted. Killed at any instant, the next run or export
    removes what was left. Raises PipelineError where an export is under way, or the lake has no such queue.
    """
    began = time.monotonic()
    if size < 1:
        raise InvalidArgumentError(f"the size must be 1 byte or more, got {size}")
    place, table = lake_at(lake), table_named(table).name
    if not read_exported(place, queue, table).number:
        raise PipelineError(f"{place.uri} holds no {table} of queue {queue}", queue=queue)
    lake_format = format_of(place, table) or "parquet"
    check_compacts(lake_format)
    with clear_errors(), run_on(dsn, place, queue, table) as run:
        if lake_format == "delta":
            replaced, written = delta.compact(place, table, queue, size)
        else:
            replaced, written = 0, 0
            sizes = place.sizes(folder_of(table, queue))
            groups = list(_groups(files_of(place, queue, table), sizes, size))
            if groups:
                manifest = run.begin(run.exported.source, lake_format)
                files = []
                for n, names in enumerate(groups):
                    files.append(f"{names[0].rpartition('/')[0]}/{manifest.token}-{n:05}.parquet")
                    join(place, names, files[-1])
                removed = [name for names in groups for name in names]
                manifest = replace(manifest, files=files, removed=removed)
                write_manifest(place, manifest)
                run.end(manifest)
                replaced, written = len(removed), len(files)
    return CompactReport(queue, table, str(lake), lake_format, replaced, written, time.monotonic() - began)


def check_compacts(lake_format: str) -> None:
    """Raise PipelineError for a format whose files can't be joined."""
    if lake_format == "iceberg":
        raise PipelineError(
            "PyIceberg compacts no tables", hint="Use the procedure rewrite_data_files of Iceberg for Spark."
        )


def _groups(files: Sequence[str], sizes: Mapping[str, int], size: int) -> Iterator[list[str]]:
    """Yield the small files of a day that become one, in the order of their export."""
    days: dict[str, list[str]] = defaultdict(list)
    for name in files:
        days[name.rpartition("/")[0]].append(name)
    for names in days.values():
        group: list[str] = []
        total = 0
        for name in names:
            n = sizes[name]
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
