"""Delta tables: tasks write the files, and one commit makes them rows, with its number.

The number is that of the manifest, kept by Delta as an application's transaction: whether a commit took place
before a kill can be asked afterwards, so none is made twice.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import pyarrow
import pyarrow.parquet

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES, folder_of
from spanmq_spark.jobs.manifests.store import Committed, Manifest, write_draft
from spanmq_spark.jobs.ranges import Ranges
from spanmq_spark.jobs.table_format import ManifestFormat

# A condition of many is slow to plan.
RANGES_PER_COMMIT: Final = 100
LAST: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


class DeltaFormat(ManifestFormat):
    """A Delta table, partitioned by queue and day."""

    __slots__ = ()

    def committed(self, manifest: Manifest) -> Committed:
        """Return the versions of both of the queue's applications."""
        return _committed(self._opened(), manifest)

    def commit(self, manifest: Manifest, files: Sequence[parquet.LakeFile]) -> None:
        """Add files to the table, which is created if need be."""
        if manifest.has_rows:
            write_draft(self.lake, manifest)
        self._write(manifest, files, {})

    def remake(self, manifest: Manifest, files: Sequence[str]) -> None:
        """Put these files in the place of all that the table has of the queue."""
        write_draft(self.lake, manifest)
        sizes = self.lake.sizes(folder_of(self.table, manifest.queue))
        written = [parquet.LakeFile(name, 0, sizes[name]) for name in files]
        self._write(manifest, written, {"partition_filters": [(PARTITIONS[0], "=", manifest.queue)]})

    def _write(self, manifest: Manifest, files: Sequence[parquet.LakeFile], options: dict[str, Any]) -> None:
        from deltalake import Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, create_table_with_add_actions

        actions = [self._added(AddAction, file) for file in files]
        schema = Schema.from_arrow(TABLES[self.table].schema_with_day)
        table = self._opened()
        committed = _committed(table, manifest)
        committed.check(self.lake, manifest)
        properties = _noted(manifest, committed)
        try:
            if table is None:
                create_table_with_add_actions(
                    self._uri,
                    schema,
                    actions,
                    mode="error",
                    partition_by=PARTITIONS,
                    commit_properties=properties,
                )
            else:
                mode: Any = "overwrite" if options else "append"
                table.create_write_transaction(
                    actions, mode, schema, PARTITIONS, commit_properties=properties, **options
                )
        except DeltaError as error:
            raise PipelineError(f"the Delta table {self._uri} took no commit: {error}") from error

    def read(self, queue: str | None) -> list[str]:
        """Return the files that the table has now."""
        table = self._opened()
        if table is None:
            return []
        actions = pyarrow.table(table.get_add_actions(flatten=True))
        pairs = zip(*(actions[column].to_pylist() for column in ("path", "partition.queue")), strict=True)
        return [f"{self.table}/{unquote(path)}" for path, of in pairs if queue in (None, of)]

    def compact(self, queue: str, size: int) -> tuple[int, int]:
        """Make files of up to `size` bytes of a queue's small ones, by a commit of Delta's own.

        Return how many were replaced, and by how many.
        """
        table = self._opened()
        if table is None:
            return 0, 0
        filters = [(PARTITIONS[0], "=", queue)]
        done = table.optimize.compact(partition_filters=filters, target_size=size)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def remove(self, manifest: Manifest, files: Sequence[str], ids: Ranges) -> Manifest:  # noqa: ARG002
        """Delete the rows, a hundred ranges with each commit; the last one has the number."""
        from deltalake import CommitProperties

        write_draft(self.lake, manifest)
        table = self._opened()
        committed = _committed(table, manifest)
        committed.check(self.lake, manifest)
        column = TABLES[self.table].id
        quoted = "'" + manifest.queue.replace("'", "''") + "'"
        for first in range(0, len(ids) if table is not None else 0, RANGES_PER_COMMIT):
            ranges = ids[first : first + RANGES_PER_COMMIT]
            among = " or ".join(f"{column} between {a} and {b}" for a, b in ranges)
            is_last = first + RANGES_PER_COMMIT >= len(ids)
            table.delete(
                f"{PARTITIONS[0]} = {quoted} and ({among})",
                commit_properties=_noted(manifest, committed) if is_last else CommitProperties(),
            )
        return manifest

    def expire(self) -> None:
        """Delete files that were replaced a week ago: until then readers of older versions have them."""
        table = self._opened()
        if table is not None:
            table.vacuum(dry_run=False)

    @property
    def _uri(self) -> str:
        return f"{self.lake.uri}/{self.table}"

    def _opened(self) -> Any:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            raise ExtraNotInstalledError("deltalake is not installed", extra="spark") from error
        return DeltaTable(self._uri) if DeltaTable.is_deltatable(self._uri) else None

    def _added(self, action: Any, file: parquet.LakeFile) -> Any:
        path = file.name.removeprefix(f"{self.table}/")
        pairs = (part.split("=", 1) for part in path.split("/")[:-1])
        values = {column: unquote(value) for column, value in pairs}
        with self.lake.reader(file.name) as opened:
            stats = _statistics(pyarrow.parquet.read_metadata(opened))
        return action(path, file.size, values, int(time.time() * 1000), True, json.dumps(stats))


def _committed(table: Any, manifest: Manifest) -> Committed:
    if table is None:
        return Committed()
    return Committed.noted(manifest, table.transaction_version)


def _noted(manifest: Manifest, committed: Committed) -> Any:
    """Return what a commit notes of itself."""
    from deltalake import CommitProperties
    from deltalake.transaction import Transaction

    notes = committed.notes(manifest).items()
    return CommitProperties(app_transactions=[Transaction(name, version) for name, version in notes])


def _statistics(metadata: Any) -> dict[str, Any]:
    """Return the least and the greatest ids and times of a file, by which readers skip it."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for place in range(metadata.num_columns):
        column = [group.column(place) for group in groups]
        statistics = [chunk.statistics for chunk in column]
        if not all(group is not None and group.has_min_max for group in statistics):
            continue
        low, high = min(group.min for group in statistics), max(group.max for group in statistics)
        name = column[0].path_in_schema
        if isinstance(low, datetime):
            # Delta's have milliseconds: rounded down, and up.
            low, high = _text(low), _text(high, up=True)
        elif not isinstance(low, int):
            continue
        lows[name], highs[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs}


def _text(time: datetime, *, up: bool = False) -> str:
    utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    # There is nothing after the last millisecond of the year 9999.
    if up and utc < LAST:
        utc += timedelta(microseconds=999)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
