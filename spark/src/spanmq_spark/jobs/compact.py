"""compact: the small files of each day of a Delta lake become few large ones."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq_spark.cause import clear_errors
from spanmq_spark.jobs.delta import DeltaFormat
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_format import BY_MANIFEST, check_compacts
from spanmq_spark.jobs.lake_lock import format_of
from spanmq_spark.jobs.lake_table import table_named
from spanmq_spark.jobs.manifests.run import run_on
from spanmq_spark.jobs.manifests.store import read_exported

__all__ = ["CompactReport", "compact"]

SIZE: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The result of a compaction of the `table` of a `queue` in a `lake` of this `format`: `written` files in place of
    `replaced` ones, in `seconds`.
    """

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
    """Make files of about `size` bytes of those of a `queue` that are smaller, within each day.

    `dsn` is its database; `lake` is a folder or the URI of an object store, `table` its `archive` or `dead_letters`.
    Delta commits it, and readers of older versions keep their files for a week. Raises PipelineError where an export is
    under way, or the lake has no such queue, or is of another format than Delta, and InvalidArgumentError for a size
    below 1.
    """
    began = time.monotonic()
    if size < 1:
        raise InvalidArgumentError(f"the size must be 1 byte or more, got {size}")
    place, table = lake_at(lake), table_named(table).name
    lake_format = format_of(place, table) or "parquet"
    if lake_format in BY_MANIFEST and not read_exported(place, queue, table).number:
        raise PipelineError(f"{place.uri} holds no {table} of queue {queue}", queue=queue)
    check_compacts(lake_format)
    files = DeltaFormat(dsn, place, table)
    with clear_errors(), run_on(dsn, place, queue, table):
        replaced, written = files.compact(queue, size)
        files.expire()
    return CompactReport(queue, table, str(lake), lake_format, replaced, written, time.monotonic() - began)
