"""What a table of a lake does, whatever its format; each of these is a class of its own (lake_format.py)."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow

from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.manifests.store import Manifest
from spanmq_spark.jobs.ranges import Ranges


@dataclass(frozen=True, slots=True)
class LakeFormat(ABC):
    """A table of a `lake`: tasks append files, and the driver's commit makes them rows.

    Its catalogue, where the format has one, may be in the database of `dsn`.
    """

    dsn: str
    lake: Lake
    table: str

    @property
    def file_schema(self) -> pyarrow.Schema:
        """The columns of files: without the queue, which is the name of their folder, as the day is."""
        return TABLES[self.table].schema.remove(0)

    @abstractmethod
    def read(self, queue: str) -> list[str]:
        """Return the names in the lake of the files that have the rows of a queue."""

    def deleted(self, queue: str) -> Mapping[str, Ranges]:  # noqa: ARG002
        """Return the places of rows in these files that don't count."""
        return {}


class ManifestFormat(LakeFormat):
    """A table that commits in the lake or a catalogue, after a manifest's draft and before the manifest."""

    __slots__ = ()

    @abstractmethod
    def committed(self, manifest: Manifest) -> int:
        """Return what the newest commit of the manifest's queue has noted in the table, 0 without any."""

    @abstractmethod
    def commit(
        self, manifest: Manifest, files: Sequence[parquet.LakeFile], removed: Collection[str] = ()
    ) -> None:
        """Make rows of files, and none of those `removed`, under the `next_commit` of a manifest.

        Without files, only take that number. The table is created if need be. Raises PipelineError where another run
        has taken the number, PositionUnknownError where the table lacks what the manifest follows.
        """

    def reach(self) -> None:
        """If the lake lacks what the catalogue has of the table, have it as it was when the lake had it."""
