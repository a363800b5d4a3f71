"""Iceberg tables: tasks write the files, and one commit of PyIceberg makes them rows.

With it goes the number of the manifest, as a property of the table: whether a commit took place before a kill
can be asked afterwards. The catalogue is the one that PyIceberg's configuration has as `spanmq`, else tables
in the database of the queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from psycopg.conninfo import conninfo_to_dict

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq.spark.jobs import parquet
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq.spark.jobs.manifest import Manifest, Ranges, Writing, came_first, files_of, is_taken, write_draft

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


CATALOG: Final = "spanmq"
# A commit writes the list of all snapshots and manifests anew, so both stay short. What is taken off the list of
# snapshots stays in the folder for a week: a database that is restored has the catalogue of its time.
SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
AGE: Final = "history.expire.max-snapshot-age-ms"
POLICY: Final = {
    SNAPSHOTS: "10",
    AGE: str(timedelta(days=7) // timedelta(milliseconds=1)),
    "write.metadata.previous-versions-max": "10",
    "commit.manifest.min-count-to-merge": "2",
    "commit.manifest.target-size-bytes": str(256 << 10),
    # Files have no statistics of it.
    "write.metadata.metrics.column.body": "none",
}
# The commits between two looks for what nothing needs, and between two that join manifests. With its own setting
# PyIceberg writes a large one again at each commit as soon as it is nearly full.
EXPIRE_EVERY: Final = 100
MERGE_EVERY: Final = 20
MERGES: Final = "commit.manifest-merge.enabled"


@dataclass(frozen=True, slots=True)
class IcebergFormat:
    """An Iceberg table, partitioned by queue and day; its namespace is the name of the lake's folder."""

    dsn: str | None
    lake: Lake
    table: str
    compacts: ClassVar[bool] = False

    def append(
        self, queue: str, prefix: str, batches: Iterator[pyarrow.RecordBatch]
    ) -> Iterator[pyarrow.RecordBatch]:
        """Write rows into files, which have the partitions as columns; yield what each has."""
        table = TABLES[self.table]
        return parquet.write(self.lake, table, queue, prefix, batches, table.schema_with_day)

    def committed(self, manifest: Manifest) -> int:
        """Return what the table's properties have of the last commit."""
        with self._catalog() as catalog:
            table = self._found(catalog)
            return 0 if table is None else int(table.properties.get(manifest.application, 0))

    def commit(self, manifest: Manifest, files: Sequence[parquet.Written]) -> None:
        """Add files to the table, which is created if need be."""
        if files:
            write_draft(self.lake, manifest)
        with self._catalog() as catalog:
            table = self._found(catalog)
            if table is None:
                transaction = self._created(catalog)
            elif is_taken(int(table.properties.get(manifest.application, 0)), manifest.commit):
                raise came_first(self.lake, manifest)
            else:
                transaction = table.transaction()
            if files:
                # Their names have the token of this run: no table can have them already.
                names = [f"{self._location}/{each.name.removeprefix(f'{self.table}/')}" for each in files]
                transaction.set_properties({MERGES: str(manifest.number % MERGE_EVERY == 0).lower()})
                transaction.add_files(names, check_duplicate_files=False)
                _forget_snapshots(transaction)
            transaction.set_properties({manifest.application: str(manifest.commit)})
            transaction.commit_transaction()
        if manifest.number % EXPIRE_EVERY == 0:
            self.expire()

    def read(self, queue: str | None) -> list[str]:
        """Return the files that the table has now of a queue; without the database, those of the manifests."""
        if queue is None or self.dsn is None:
            return files_of(self.lake, queue, self.table)
        from pyiceberg import expressions

        equal_to: Any = expressions.EqualTo
        with self._catalog() as catalog:
            table = self._found(catalog)
            if table is None:
                raise PipelineError(
                    f"the catalogue has no table {self._name}",
                    hint="It is in the database of the queues, or what PyIceberg's configuration has as spanmq.",
                )
            location = table.location()
            tasks = list(table.scan(row_filter=equal_to(PARTITIONS[0], queue)).plan_files())
        if any(task.delete_files for task in tasks):
            raise PipelineError(
                f"rows of the table {self._name} were deleted by files of their own",
                hint="Run Iceberg's procedure rewrite_data_files, with delete-file-threshold 1, before.",
            )
        return [f"{self.table}/{task.file.file_path.removeprefix(location + '/')}" for task in tasks]

    def compact(self, run: Writing, size: int) -> tuple[int, int]:
        """Raise PipelineError: PyIceberg compacts no tables."""
        raise NotImplementedError

    def remove(self, manifest: Manifest, files: Sequence[str], ids: Ranges) -> Manifest:  # noqa: ARG002
        """Delete the rows by one commit."""
        from pyiceberg import expressions

        write_draft(self.lake, manifest)
        column = TABLES[self.table].id
        equal: Any = expressions.EqualTo
        low: Any = expressions.GreaterThanOrEqual
        high: Any = expressions.LessThanOrEqual
        with self._catalog() as catalog:
            table = self._found(catalog)
            if table is not None:
                transaction: Any = table.transaction()
                for a, b in ids:
                    between = expressions.And(low(column, a), high(column, b))
                    transaction.delete(expressions.And(equal(PARTITIONS[0], manifest.queue), between))
                transaction.set_properties({manifest.application: str(manifest.commit)})
                transaction.commit_transaction()
        return manifest

    def expire(self) -> None:
        """Delete files of metadata that the table has not needed for as long as its policy says."""
        from pyiceberg.table import StaticTable

        with self._catalog() as catalog:
            table = self._found(catalog)
            if table is None:
                return
            age = int(table.properties.get(AGE, POLICY[AGE]))
            folder = f"{self.table}/metadata"
            old = self.lake.written_before(folder, datetime.now(UTC) - timedelta(milliseconds=age))
            versions = [name for name in old if name.endswith(".metadata.json")]
            if not versions:
                return
            # A file that is as old, and was needed at any time since, was needed then.
            last = max(versions, key=lambda name: name.rpartition("/")[2])
            then = StaticTable.from_metadata(f"{self._location}/{last.removeprefix(f'{self.table}/')}")
            needed = {last} | {self._in_lake(name) for each in (then, table) for name in _metadata_of(each)}
            for name in set(old) - needed:
                self.lake.delete(name)

    @property
    def _name(self) -> str:
        return f"{self.lake.folder}.{self.table}"

    @property
    def _location(self) -> str:
        uri = self.lake.uri
        return f"{uri if '://' in uri else Path(uri).as_uri()}/{self.table}"

    def _in_lake(self, name: str) -> str:
        return f"{self.table}{name.removeprefix(self._location)}"

    def _created(self, catalog: Catalog) -> Any:
        """Begin a transaction that creates the table."""
        name = (self.lake.folder, self.table)
        catalog.create_namespace_if_not_exists(name[:1])
        schema = TABLES[self.table].schema_with_day
        transaction = catalog.create_table_transaction(
            name, schema, location=self._location, properties=POLICY
        )
        with transaction.update_spec() as spec:
            for column in PARTITIONS:
                spec.add_identity(column)
        return transaction

    def _found(self, catalog: Catalog) -> Table | None:
        """Return the table, None without one; raises PipelineError for one that is elsewhere."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            found = catalog.load_table((self.lake.folder, self.table))
        except NoSuchTableError:
            return None
        if found.location() != self._location:
            raise PipelineError(
                f"the catalogue has the table {self._name} at {found.location()}, not at {self._location}",
                hint="Name the folder otherwise: its name is the table's namespace.",
            )
        return found

    @contextmanager
    def _catalog(self) -> Iterator[Catalog]:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.utils.config import Config
            from sqlalchemy import URL
        except ImportError as error:
            raise ExtraNotInstalledError("PyIceberg is not installed", extra="iceberg") from error
        settings: dict[str, Any] = {}
        if not Config().get_catalog_config(CATALOG):
            query = {key: str(value) for key, value in conninfo_to_dict(self.dsn or "").items()}
            url = URL.create("postgresql+psycopg", query=query)
            settings = {"type": "sql", "uri": url.render_as_string(hide_password=False)}
        with load_catalog(CATALOG, **settings) as catalog:
            yield catalog


def _forget_snapshots(transaction: Any) -> None:
    """Take all snapshots but the newest ones off the list, and those that a branch or a tag names."""
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    metadata = transaction.table_metadata
    named = {each.snapshot_id for each in metadata.refs.values()}
    keep = int(metadata.properties.get(SNAPSHOTS, POLICY[SNAPSHOTS]))
    by_age = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    old = [each.snapshot_id for each in by_age[: -max(keep, 1)] if each.snapshot_id not in named]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()


def _metadata_of(table: Any) -> Iterator[str]:
    """Yield the files of a table's metadata: of this version, and of its snapshots."""
    yield table.metadata_location
    yield from (each.statistics_path for each in table.metadata.statistics)
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        yield from (each.manifest_path for each in snapshot.manifests(table.io))
