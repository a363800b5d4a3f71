"""The formats of a lake. Each is one class, in a file of its own; nothing else depends on a format's name.

Three of them commit in the lake, and manifests beside tell what was exported (manifests). The catalogue of a DuckLake
is in the database of the queues, and so is all that its exports note (ducklake/run.py).
"""

from collections.abc import Mapping
from typing import Final

from spanmq.errors import InvalidArgumentError
from spanmq_spark.jobs.delta import DeltaFormat
from spanmq_spark.jobs.ducklake.format import DuckLakeFormat
from spanmq_spark.jobs.iceberg import IcebergFormat
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_lock import format_of
from spanmq_spark.jobs.plain import PlainFormat
from spanmq_spark.jobs.table_format import LakeFormat, ManifestFormat
from spanmq_spark.options import hint_of

# Exports note what they did in the lake; those of the others do so in the database.
BY_MANIFEST: Final[Mapping[str, type[ManifestFormat]]] = {
    "parquet": PlainFormat,
    "delta": DeltaFormat,
    "iceberg": IcebergFormat,
}
FORMATS: Final[Mapping[str, type[LakeFormat]]] = {**BY_MANIFEST, "ducklake": DuckLakeFormat}


def known_table(dsn: str, lake: Lake, table: str) -> LakeFormat:
    """Open a table of a lake in the format that it has."""
    return FORMATS[format_of(lake, table) or "parquet"](dsn, lake, table)


def known_manifest_table(dsn: str, lake: Lake, table: str) -> ManifestFormat:
    """Open a table of a lake in the format that it has, which has manifests."""
    return BY_MANIFEST[format_of(lake, table) or "parquet"](dsn, lake, table)


def check_format(name: str) -> None:
    """Raise InvalidArgumentError, with the nearest name, for a format that does not exist."""
    if name not in FORMATS:
        hint = hint_of(name, tuple(FORMATS), f"There are {', '.join(FORMATS)}.")
        raise InvalidArgumentError(f"a lake has no format {name!r}", hint=hint)
