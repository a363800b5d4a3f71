"""The formats of a lake. Each is one class, in a file of its own; nothing else depends on a format's name.

Three of them commit in the lake, and manifests beside tell what was exported (manifests). The catalogue of a DuckLake
is in the database of the queues, and so is all that its exports note (ducklake/run.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, Protocol

import pyarrow

from spanmq.errors import InvalidArgumentError, PipelineError
from spanmq.spark.jobs.delta import DeltaFormat
from spanmq.spark.jobs.ducklake.format import DuckLakeFormat
from spanmq.spark.jobs.iceberg import IcebergFormat
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_lock import format_of
from spanmq.spark.jobs.manifests.store import Committed, Manifest
from spanmq.spark.jobs.parquet import Checksum, Written
from spanmq.spark.jobs.plain import PlainFormat
from spanmq.spark.jobs.ranges import Ranges
from spanmq.spark.options import hint_of
from spanmq.spark.rows import crc_of


class LakeFormat(Protocol):
    """A table of a lake: tasks append files, and the driver's commit makes them rows."""

    # What joins small files where spanmq does not, as a sentence; empty where it does.
    not_compacted: ClassVar[str]

    def __init__(self, dsn: str | None, lake: Lake, table: str) -> None: ...

    def append(
        self,
        queue: str,
        prefix: str,
        batches: Iterator[pyarrow.RecordBatch],
        checksum: Checksum = crc_of,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Write rows of a queue into files whose names begin with `prefix`; yield what each has, as REPORT.

        `checksum` is that of a body, whose sum it has.
        """
        ...

    def read(self, queue: str | None) -> list[str]:
        """Return the names in the lake of the files that have the rows of a queue, or of all."""
        ...

    def deleted(self, queue: str | None) -> Mapping[str, Ranges]:
        """Return the places of rows in these files that don't count."""
        ...


class ManifestFormat(LakeFormat, Protocol):
    """A table that commits in the lake or a catalogue, after a manifest's draft and before the manifest."""

    def committed(self, manifest: Manifest) -> Committed:
        """Return which commits of manifests of the same queue the table has."""
        ...

    def commit(self, manifest: Manifest, files: Sequence[Written]) -> None:
        """Make rows of files under the `commit` of a manifest; without files, only take that number.

        Raises PipelineError where another run has taken it, PositionUnknownError where the table lacks what it follows.
        """
        ...

    def remove(self, manifest: Manifest, files: Sequence[str], ids: Ranges) -> Manifest:
        """Delete the rows with ids in these ranges, which are in these files; return what the manifest then is."""
        ...

    def remake(self, manifest: Manifest, files: Sequence[str]) -> None:
        """Have exactly the rows of these files as those of the manifest's queue, by its commit."""
        ...

    def reach(self) -> None:
        """If the lake lacks what the catalogue has of the table, have it as it was when the lake had it."""
        ...

    def expire(self) -> None:
        """Delete what only older versions of the table need, by the policy of the format."""
        ...


BY_MANIFEST: Final[Mapping[str, type[ManifestFormat]]] = {
    "parquet": PlainFormat,
    "delta": DeltaFormat,
    "iceberg": IcebergFormat,
}
FORMATS: Final[Mapping[str, type[LakeFormat]]] = {**BY_MANIFEST, "ducklake": DuckLakeFormat}


def table_of(kind: str, dsn: str | None, lake: Lake, table: str) -> LakeFormat:
    """Open a table of a lake; its catalogue, where a format has one, may be in the database of `dsn`."""
    return FORMATS[kind](dsn, lake, table)


def manifest_table(kind: str, dsn: str | None, lake: Lake, table: str) -> ManifestFormat:
    """Open a table of a format that has manifests."""
    return BY_MANIFEST[kind](dsn, lake, table)


def known_table(dsn: str | None, lake: Lake, table: str) -> LakeFormat:
    """Open a table of a lake in the format that it has."""
    return table_of(format_of(lake, table) or "parquet", dsn, lake, table)


def known_manifest_table(dsn: str | None, lake: Lake, table: str) -> ManifestFormat:
    """Open a table of a lake in the format that it has, which has manifests."""
    return manifest_table(format_of(lake, table) or "parquet", dsn, lake, table)


def has_manifests(name: str | None) -> bool:
    """Return whether exports of a format note what they did in the lake, and not in the database."""
    return name is None or name in BY_MANIFEST


def check_format(name: str) -> None:
    """Raise InvalidArgumentError, with the nearest name, for a format that does not exist."""
    if name not in FORMATS:
        hint = hint_of(name, tuple(FORMATS), f"There are {', '.join(FORMATS)}.")
        raise InvalidArgumentError(f"a lake has no format {name!r}", hint=hint)


def check_compacts(name: str) -> None:
    """Raise PipelineError for a format whose files spanmq does not join."""
    if FORMATS[name].not_compacted:
        raise PipelineError(f"spanmq compacts no tables of format {name}", hint=FORMATS[name].not_compacted)
