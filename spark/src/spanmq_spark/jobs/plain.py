"""Plain Parquet files: a file counts when a manifest names it, so the manifest is the commit."""

from collections.abc import Collection, Sequence

from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.manifests.store import Manifest, files_of, read_manifest
from spanmq_spark.jobs.table_format import ManifestFormat


class PlainFormat(ManifestFormat):
    """A table of Parquet files, in folders of queues and days that have those two columns as their names."""

    __slots__ = ()

    def committed(self, manifest: Manifest) -> int:
        """Return the commit of a manifest that is written."""
        written = read_manifest(self.lake, manifest.queue, self.table, manifest.number)
        return 0 if written is None else written.commit

    def commit(
        self, manifest: Manifest, files: Sequence[parquet.LakeFile], removed: Collection[str] = ()
    ) -> None:
        """Do nothing: the manifest is the commit."""

    def read(self, queue: str) -> list[str]:
        """Return the files that manifests name."""
        return files_of(self.lake, queue, self.table)
