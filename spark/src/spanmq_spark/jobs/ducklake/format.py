"""A table of a DuckLake, as tasks write its files and readers find them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow
import pyarrow.parquet

from spanmq_spark import rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.ducklake.catalogue import (
    PLACE,
    Catalogue,
    ColumnStats,
    NewFile,
    field_ids,
    schema_of,
)
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES, LakeTable
from spanmq_spark.jobs.ranges import Ranges, union
from spanmq_spark.jobs.table_format import LakeFormat


class DuckLakeFormat(LakeFormat):
    """A table of a DuckLake, partitioned by queue and day."""

    __slots__ = ()

    @property
    def file_schema(self) -> pyarrow.Schema:
        """The columns of files, with the ids that the catalogue has of them."""
        return schema_of(TABLES[self.table])

    def read(self, queue: str) -> list[str]:
        """Return the files that the catalogue names."""
        with rows.connected(self.dsn) as server:
            return [file.name for file in self._catalogue(server).files(queue)]

    def deleted(self, queue: str) -> Mapping[str, Ranges]:
        """Return the places of the rows in each file that were deleted by DuckDB."""
        places: dict[str, list[int]] = defaultdict(list)
        with rows.connected(self.dsn) as server:
            catalogue = self._catalogue(server)
            files = catalogue.files(queue)
            names = {file.id: file.name for file in files}
            for id_, place in catalogue.deleted_here(files) if files else ():
                places[names[id_]].append(place)
        for file in files:
            if file.deletes is not None:
                for batch in parquet.read(self.lake, [file.deletes], [PLACE]):
                    places[file.name] += batch.column(0).to_pylist()
        return {name: union([], [(place, place) for place in numbers]) for name, numbers in places.items()}

    def _catalogue(self, server: Any) -> Catalogue:
        return Catalogue(server, self.lake, TABLES[self.table])


def new_file(lake: Lake, table: LakeTable, queue: str, file: parquet.LakeFile) -> NewFile:
    """Return a written file as the catalogue shall have it, by its footer."""
    path = file.name.removeprefix(f"{table.name}/")
    day = path.split("/")[-2].removeprefix(f"{PARTITIONS[1]}=")
    with lake.reader(file.name) as opened:
        metadata = pyarrow.parquet.read_metadata(opened)
    stats = tuple(_stats(metadata, table, {PARTITIONS[0]: queue, PARTITIONS[1]: day}, file.nulls))
    return NewFile(path, file.rows, file.size, metadata.serialized_size, (queue, day), stats)


def _stats(
    metadata: Any, table: LakeTable, values: Mapping[str, str], body_nulls: int
) -> Iterator[ColumnStats]:
    """Yield what is known of each column: a reader that prunes as the specification says skips files without that."""
    ids = field_ids(table)
    for name, nulls, low, high in parquet.statistics(metadata):
        if name in values:
            yield ColumnStats(ids[name], 0, values[name], values[name])
        else:
            yield ColumnStats(ids[name], body_nulls if nulls is None else nulls, _text(low), _text(high))


def _text(value: Any) -> str | None:
    if isinstance(value, datetime):
        utc = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        return f"{utc:%Y}".zfill(4) + f"{utc:-%m-%d %H:%M:%S.%f}+00"
    return None if value is None else str(value)
