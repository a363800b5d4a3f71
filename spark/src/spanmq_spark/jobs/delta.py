"""Delta tables: tasks write the files, and one commit makes them rows, with its number.

The number is that of the manifest, kept by Delta as an application's transaction: whether a commit took place
before a kill can be asked afterwards, so none is made twice.
"""

import json
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote

import pyarrow
import pyarrow.parquet

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq_spark.jobs.manifests.store import Manifest, check_removed, next_commit
from spanmq_spark.jobs.table_format import ManifestFormat

LAST: Final = datetime.max.replace(microsecond=999_000, tzinfo=UTC)


class DeltaFormat(ManifestFormat):
    """A Delta table, partitioned by queue and day."""

    __slots__ = ()

    def committed(self, manifest: Manifest) -> int:
        """Return the version of the queue's application."""
        return _committed(self._opened(), manifest)

    def commit(
        self, manifest: Manifest, files: Sequence[parquet.LakeFile], removed: Collection[str] = ()
    ) -> None:
        """Add files to the table, which is created if need be, and take others away."""
        from deltalake import CommitProperties, Schema
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import AddAction, RemoveAction, Transaction, create_table_with_add_actions

        actions = [self._added(AddAction, file) for file in files]
        schema = Schema.from_arrow(TABLES[self.table].schema_with_day)
        table = self._opened()
        version = next_commit(self.lake, manifest, _committed(table, manifest))
        properties = CommitProperties(app_transactions=[Transaction(manifest.application, version)])
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
                check_removed(self.lake, manifest, removed, self._names(table, manifest.queue))
                now = int(time.time() * 1000)
                actions += [RemoveAction(name.removeprefix(f"{self.table}/"), True, now) for name in removed]
                table.create_write_transaction(
                    actions, "append", schema, PARTITIONS, commit_properties=properties
                )
        except DeltaError as error:
            raise PipelineError(f"the Delta table {self._uri} took no commit: {error}") from error

    def read(self, queue: str) -> list[str]:
        """Return the files that the table has now."""
        table = self._opened()
        return [] if table is None else self._names(table, queue)

    def _names(self, table: Any, queue: str) -> list[str]:
        actions = pyarrow.table(table.get_add_actions(flatten=True))
        pairs = zip(*(actions[column].to_pylist() for column in ("path", "partition.queue")), strict=True)
        return [f"{self.table}/{unquote(path)}" for path, of in pairs if of == queue]

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
        return action(path, file.size, values, int(time.time() * 1000), True, stats)


def _committed(table: Any, manifest: Manifest) -> int:
    return 0 if table is None else int(table.transaction_version(manifest.application) or 0)


def _statistics(metadata: Any) -> str:
    """Return the least and the greatest ids and times of a file, by which readers skip it."""
    ends = [(name, low, high) for name, _, low, high in parquet.statistics(metadata) if low is not None]
    lows = {name: _value(low) for name, low, _ in ends}
    highs = {name: _value(high, up=True) for name, _, high in ends}
    return json.dumps({"numRecords": metadata.num_rows, "minValues": lows, "maxValues": highs})


def _value(value: Any, *, up: bool = False) -> Any:
    """Return a value as Delta has it: times have milliseconds, rounded down or up."""
    if not isinstance(value, datetime):
        return value
    utc = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    # There is nothing after the last millisecond of the year 9999.
    if up and utc < LAST:
        utc += timedelta(microseconds=999)
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")
