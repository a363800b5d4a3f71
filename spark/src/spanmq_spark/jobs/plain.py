"""Plain Parquet files: a file counts when a manifest names it, so the manifest is the commit."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar

import pyarrow

from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.manifests.store import Committed, Manifest, files_of, read_manifest
from spanmq_spark.jobs.ranges import Ranges, has
from spanmq_spark.jobs.table_format import ManifestFormat


class PlainFormat(ManifestFormat):
    """A table of Parquet files, in folders of queues and days that have those two columns as their names."""

    __slots__ = ()
    not_compacted: ClassVar[str] = (
        "A lake whose files are joined is a table: export into Delta, Iceberg or DuckLake."
    )

    def committed(self, manifest: Manifest) -> Committed:
        """Return the commit of a manifest that is written."""
        written = read_manifest(self.lake, manifest.queue, self.table, manifest.number)
        return Committed() if written is None else Committed(written.commit, written.commit)

    def commit(self, manifest: Manifest, files: Sequence[parquet.LakeFile]) -> None:
        """Do nothing: the manifest is the commit."""

    def read(self, queue: str | None) -> list[str]:
        """Return the files that manifests name."""
        return files_of(self.lake, queue, self.table)

    def remove(self, manifest: Manifest, files: Sequence[str], ids: Ranges) -> Manifest:
        """Write what files have besides these ids into new ones, which replace them in the manifest."""
        names = []
        for number, name in enumerate(files):
            into = f"{name.rpartition('/')[0]}/{manifest.token}-{number:05}.parquet"
            with ExitStack() as stack:
                writer = None
                for batch in self._others(name, ids):
                    if writer is None:
                        writer = stack.enter_context(parquet.FileWriter.opened(self.lake, into, batch.schema))
                        names.append(into)
                    writer.add(batch)
        return replace(manifest, files=names, removed=list(files))

    def remake(self, manifest: Manifest, files: Sequence[str]) -> None:
        """Do nothing: the table is what manifests name."""

    def _others(self, name: str, ids: Ranges) -> Iterator[pyarrow.RecordBatch]:
        """Yield the rows of a file that are in none of these ranges."""
        table = TABLES[self.table]
        for batch in parquet.read(self.lake, [name], table.schema.remove(0).names):
            part = batch.filter(
                pyarrow.array([not has(ids, id_) for id_ in batch.column(table.id).to_pylist()])
            )
            if part.num_rows:
                yield part
