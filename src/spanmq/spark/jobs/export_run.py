"""A run of an export, as the export sees it: with manifests it is manifests/run.py's, with a DuckLake ducklake/run.py's."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from spanmq.spark.jobs.manifests.store import Manifest
from spanmq.spark.jobs.parquet import Written
from spanmq.spark.jobs.ranges import Ranges


@dataclass(frozen=True, slots=True)
class Seen:
    """What an export has compared with the lake: rows that were archived before `since`, a time as text; and when all
    ids were compared (`is_whole`: now), in seconds since 1970.
    """

    since: str
    compared_at: float
    is_whole: bool


class Known(Protocol):
    """What is known of a queue in a lake."""

    @property
    def queue(self) -> str:
        """The queue."""
        ...

    @property
    def table(self) -> str:
        """The table of the lake."""
        ...

    @property
    def count(self) -> int:
        """The number of its rows that are in the lake."""
        ...

    @property
    def since(self) -> str:
        """Rows that were archived before this time are in the lake; empty: not known."""
        ...

    @property
    def compared_at(self) -> float:
        """The seconds since 1970 at which all ids were compared with the database's."""
        ...

    @property
    def ids(self) -> Ranges:
        """All ids that are in the lake."""
        ...

    def ids_in(self, blocks: Iterable[int]) -> Ranges:
        """Return those in some blocks of ids."""
        ...


class ExportRun(Protocol):
    """The only run on a queue's table of a lake."""

    @property
    def exported(self) -> Known:
        """What the lake had before."""
        ...

    def begin(self, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
        """Return what the files are for that will be written; their names begin with its token."""
        ...

    def commit(
        self, manifest: Manifest, files: Sequence[Written], witnesses: Sequence[str], seen: Seen
    ) -> None:
        """Make the rows of files those of the lake, and note it in the database, for retention.

        `witnesses` prove that the database has the rows. Raises PipelineError where another run came first,
        PositionUnknownError where the database or the lake was set back.
        """
        ...

    def drop(self, manifest: Manifest) -> None:
        """End without files."""
        ...

    def note(self, seen: Seen) -> None:
        """Note what was seen; after a commit, too."""
        ...
