"""Delta tables: tasks write the files, and one commit makes them rows, with its number.

The number is that of the manifest, kept by Delta as an application's transaction: whether a commit took place
before a kill can be asked afterwards, so none is made twice.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final
from urllib.parse import unquote

import pyarrow
import pyarrow.parquet

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.jobs import parquet
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq.spark.jobs.manifest import Manifest, Ranges, Writing, came_first, is_taken, write_draft

# A condition of many is slow to plan.
RANGES_PER_COMMIT: Final = 100


@dataclass(frozen=True, slots=True)
class DeltaFormat:
    """A Delta table, partitioned by queue and day."""

    dsn: str | None
    lake: Lake
    table: str
    compacts: ClassVar[bool] = True

    def append(
        self, queue: str, prefix: str, batches: Iterator[pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        """Write rows into files; yield what each has."""
        table = TABLES[self.table]
        return parquet.write(self.lake, table, queue, prefix, batches, table.schema.remove(0))

    def committed(self, manifest: Manifest) -> int:
        """Return the version of the application's last transaction."""
        table = self._opened()
        return 0 if table is None else int(table.transaction_version(manifest.application) or 0)

    def commit(self, manifest: Manifest, files: Sequence[parquet.Written]) -> None:
        """Add files to the table, which is created if need be."""
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, Transaction, create_table_with_add_actions

        if files:
            write_draft(self.lake, manifest)
        actions = [self._added(AddAction, each) for each in files]
        schema = Schema.from_arrow(TABLES[self.table].schema_with_day)
        properties = CommitProperties(app_transactions=[Transaction(manifest.application, manifest.commit)])
        table = self._opened()
        if table is not None and is_taken(self.committed(manifest), manifest.commit):
            raise came_first(self.lake, manifest)
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
                table.create_write_transaction(
                    actions, "append", schema, PARTITIONS, commit_properties=properties
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

    def compact(self, run: Writing, size: int) -> tuple[int, int]:
        """Join small files by a commit of Delta's own."""
        table = self._opened()
        if table is None:
            return 0, 0
        filters = [(PARTITIONS[0], "=", run.exported.queue)]
        done = table.optimize.compact(partition_filters=filters, target_size=size)
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def remove(self, manifest: Manifest, files: Sequence[str], ids: Ranges) -> Manifest:  # noqa: ARG002
        """Delete the rows, a hundred ranges with each commit; the last one has the number."""
        from deltalake import CommitProperties
        from deltalake.transaction import Transaction

        write_draft(self.lake, manifest)
        table = self._opened()
        column = TABLES[self.table].id
        quoted = "'" + manifest.queue.replace("'", "''") + "'"
        for first in range(0, len(ids) if table is not None else 0, RANGES_PER_COMMIT):
            ranges = ids[first : first + RANGES_PER_COMMIT]
            among = " or ".join(f"{column} between {a} and {b}" for a, b in ranges)
            is_last = first + RANGES_PER_COMMIT >= len(ids)
            numbered = [Transaction(manifest.application, manifest.commit)] if is_last else []
            table.delete(
                f"{PARTITIONS[0]} = {quoted} and ({among})",
                commit_properties=CommitProperties(app_transactions=numbered),
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

    def _added(self, action: Any, file: parquet.Written) -> Any:
        path = file.name.removeprefix(f"{self.table}/")
        pairs = (part.split("=", 1) for part in path.split("/")[:-1])
        values = {column: unquote(value) for column, value in pairs}
        with self.lake.reader(file.name) as opened:
            stats = _statistics(pyarrow.parquet.read_metadata(opened))
        return action(path, file.size, values, int(time.time() * 1000), True, json.dumps(stats))


def _statistics(metadata: Any) -> dict[str, Any]:
    """Return the least and the greatest ids and times of a file, by which readers skip it."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for place in range(metadata.num_columns):
        column = [group.column(place) for group in groups]
        found = [each.statistics for each in column]
        if not all(each is not None and each.has_min_max for each in found):
            continue
        low, high = min(each.min for each in found), max(each.max for each in found)
        name = column[0].path_in_schema
        if isinstance(low, datetime):
            # Delta's have milliseconds: rounded down, and up.
            low, high = _text(low), _text(high + timedelta(microseconds=999))
        elif not isinstance(low, int):
            continue
        lows[name], highs[name] = low, high
    return {"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs}


def _text(time: datetime) -> str:
    utc = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
