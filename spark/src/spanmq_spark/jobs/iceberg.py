"""Iceberg tables: tasks write the files, and one commit of PyIceberg makes them rows.

With it goes the number of the manifest, as a property of the table: whether a commit took place before a kill
can be asked afterwards. The catalogue is the one that PyIceberg's configuration has as `spanmq`, else tables
in the database of the queues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from psycopg.conninfo import conninfo_to_dict

from spanmq.errors import ExtraNotInstalledError, PipelineError
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES
from spanmq_spark.jobs.manifests.store import Manifest, check_removed, next_commit
from spanmq_spark.jobs.table_format import ManifestFormat

if TYPE_CHECKING:
    import pyarrow
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table


CATALOG: Final = "spanmq"
METADATA: Final = ".metadata.json"
# Another queue's export, or another program, may commit at the same time. PyIceberg would repeat the commit of a run
# that another has overtaken, so a commit is repeated with its check.
TRIES: Final = 5
RETRIES: Final = {"commit.retry.num-retries": "0"}
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
    **RETRIES,
}
# The commits between two looks for what nothing needs, and between two that join manifests. With its own setting
# PyIceberg writes a large one again at each commit as soon as it is nearly full.
EXPIRE_EVERY: Final = 100
MERGE_EVERY: Final = 20
MERGES: Final = "commit.manifest-merge.enabled"


class IcebergFormat(ManifestFormat):
    """An Iceberg table, partitioned by queue and day; its namespace is the name of the lake's folder."""

    __slots__ = ()

    @property
    def file_schema(self) -> pyarrow.Schema:
        """The columns of files, which have the partitions, too."""
        return TABLES[self.table].schema_with_day

    def committed(self, manifest: Manifest) -> int:
        """Return what the table's properties have of the newest commit."""
        with self._catalog() as catalog:
            return _committed(self._table(catalog), manifest)

    def commit(
        self, manifest: Manifest, files: Sequence[parquet.LakeFile], removed: Collection[str] = ()
    ) -> None:
        """Add files to the table, which is created if need be, and take others away."""
        with self._catalog() as catalog:
            from pyiceberg.exceptions import CommitFailedException

            for attempt in range(1, TRIES + 1):
                try:
                    self._commit(catalog, manifest, files, removed)
                    break
                except CommitFailedException as error:
                    if attempt == TRIES:
                        message = f"the Iceberg table {self._name} took no commit: {error}"
                        raise PipelineError(message) from error
        if manifest.number % EXPIRE_EVERY == 0:
            self.expire()

    def _commit(
        self,
        catalog: Catalog,
        manifest: Manifest,
        files: Sequence[parquet.LakeFile],
        removed: Collection[str],
    ) -> None:
        table = self._table(catalog)
        version = next_commit(self.lake, manifest, _committed(table, manifest))
        transaction: Any = self._created(catalog) if table is None else table.transaction()
        if table is not None and removed:
            names = self._files(table, manifest.queue)
            check_removed(self.lake, manifest, removed, names)
            with transaction.update_snapshot().overwrite() as snapshot:
                for name in removed:
                    snapshot.delete_data_file(names[name])
        if files:
            # The table has none of them, for their names have the token of a run.
            added = [self._path(file.name) for file in files]
            transaction.set_properties({MERGES: str(manifest.number % MERGE_EVERY == 0).lower()})
            transaction.add_files(added, check_duplicate_files=False)
            _forget_snapshots(transaction)
        elif not removed:
            # Each commit has a snapshot: one that is under way meanwhile, and began before, fails by that.
            with transaction.update_snapshot().fast_append():
                pass
        transaction.set_properties({manifest.application: str(version), **RETRIES})
        transaction.commit_transaction()

    def read(self, queue: str) -> list[str]:
        """Return the files that the table has now of a queue."""
        with self._catalog() as catalog:
            table = self._table(catalog)
            if table is None:
                raise PipelineError(
                    f"the catalogue has no table {self._name}",
                    hint="It is in the database of the queues, or what PyIceberg's configuration has as spanmq.",
                )
            return list(self._files(table, queue))

    def reach(self) -> None:
        """Register the newest metadata that the lake has, if it lacks that of the catalogue."""
        name = (self.lake.folder, self.table)
        with self._catalog() as catalog:
            try:
                self._table(catalog)
            except (FileNotFoundError, OSError):
                versions = [
                    path for path in self.lake.sizes(f"{self.table}/metadata") if path.endswith(METADATA)
                ]
                catalog.drop_table(name)
                if versions:
                    catalog.register_table(name, self._path(max(versions)))

    def expire(self) -> None:
        """Delete files of metadata that the table has not needed for as long as its policy says."""
        from pyiceberg.table import StaticTable

        with self._catalog() as catalog:
            table = self._table(catalog)
            if table is None:
                return
            age = int(table.properties.get(AGE, POLICY[AGE]))
            folder = f"{self.table}/metadata"
            old = self.lake.sizes(folder, before=datetime.now(UTC) - timedelta(milliseconds=age))
            versions = [name for name in old if name.endswith(METADATA)]
            if not versions:
                return
            # A file that is as old, and was needed at any time since, was needed then.
            last = max(versions, key=lambda name: name.rpartition("/")[2])
            then = StaticTable.from_metadata(f"{self._location}/{last.removeprefix(f'{self.table}/')}")
            needed = {last} | {
                self._in_lake(name) for loaded in (then, table) for name in _metadata_of(loaded)
            }
            for name in set(old) - needed:
                self.lake.delete(name)

    @property
    def _name(self) -> str:
        return f"{self.lake.folder}.{self.table}"

    @property
    def _location(self) -> str:
        uri = self.lake.uri
        return f"{uri if '://' in uri else Path(uri).as_uri()}/{self.table}"

    def _files(self, table: Table, queue: str) -> dict[str, DataFile]:
        """Return the files that the table has of a queue, by their names in the lake."""
        tasks = list(table.scan(row_filter=_of(queue)).plan_files())
        if any(task.delete_files for task in tasks):
            raise PipelineError(
                f"rows of the table {self._name} were deleted by files of their own",
                hint="Run Iceberg's procedure rewrite_data_files, with delete-file-threshold 1, before.",
            )
        return {self._in_lake(task.file.file_path): task.file for task in tasks}

    def _path(self, name: str) -> str:
        return f"{self._location}/{name.removeprefix(f'{self.table}/')}"

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

    def _table(self, catalog: Catalog) -> Table | None:
        """Return the table, None without one; raises PipelineError for one that is elsewhere."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = catalog.load_table((self.lake.folder, self.table))
        except NoSuchTableError:
            return None
        if table.location() != self._location:
            raise PipelineError(
                f"the catalogue has the table {self._name} at {table.location()}, not at {self._location}",
                hint="Name the folder otherwise: its name is the table's namespace.",
            )
        return table

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
            query = {key: str(value) for key, value in conninfo_to_dict(self.dsn).items()}
            url = URL.create("postgresql+psycopg", query=query)
            settings = {"type": "sql", "uri": url.render_as_string(hide_password=False)}
        with load_catalog(CATALOG, **settings) as catalog:
            yield catalog


def _committed(table: Table | None, manifest: Manifest) -> int:
    return 0 if table is None else int(table.properties.get(manifest.application, 0))


def _of(queue: str) -> Any:
    """Return the condition that a row is of a queue."""
    from pyiceberg import expressions

    equal_to: Any = expressions.EqualTo
    return equal_to(PARTITIONS[0], queue)


def _forget_snapshots(transaction: Any) -> None:
    """Take all snapshots but the newest ones off the list, and those that a branch or a tag names."""
    from pyiceberg.table.update.snapshot import ExpireSnapshots

    metadata = transaction.table_metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    keep = int(metadata.properties.get(SNAPSHOTS, POLICY[SNAPSHOTS]))
    by_age = sorted(metadata.snapshots, key=lambda snapshot: snapshot.sequence_number or 0)
    old = [snapshot.snapshot_id for snapshot in by_age[: -max(keep, 1)] if snapshot.snapshot_id not in named]
    if old:
        ExpireSnapshots(transaction).by_ids(old).commit()


def _metadata_of(table: Any) -> Iterator[str]:
    """Yield the files of a table's metadata: of this version, and of its snapshots."""
    yield table.metadata_location
    yield from (file.statistics_path for file in table.metadata.statistics)
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        yield from (manifest.manifest_path for manifest in snapshot.manifests(table.io))
