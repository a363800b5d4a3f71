"""What continues a lake after a restore or a move: by its manifests, or by its DuckLake's catalogue."""

from typing import Protocol

from spanmq.errors import PipelineError
from spanmq_spark.jobs.ducklake import repair as by_catalogue
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.lost import RestoredTable
from spanmq_spark.jobs.manifests import repair as by_manifests


class Repair(Protocol):
    """The functions of such a module."""

    def has_any(self, dsn: str, lake: Lake, queue: str, table: str) -> bool:
        """Return whether an export of a queue's table was noted."""
        ...

    def restore(
        self, dsn: str, lake: Lake, queue: str, table: str, *, is_dry_run: bool
    ) -> RestoredTable | None:
        """Continue with what the database and the lake have; return what differed, None where nothing did."""
        ...

    def move(self, dsn: str, lake: Lake, queue: str, table: str) -> bool:
        """Connect a table to the database in which its queue is now; return whether it was of another, or refused.

        Raises PositionUnknownError if one of both lacks what the other has.
        """
        ...


def repairs_of(dsn: str, lake: Lake, queue: str) -> dict[str, Repair]:
    """Return the repair of each table of a lake that has exports of a queue; raises PipelineError if none has."""
    repairs: dict[str, Repair] = {}
    for table in TABLES:
        repair: Repair = by_catalogue if by_catalogue.is_one(dsn, lake, table) else by_manifests
        if repair.has_any(dsn, lake, queue, table):
            repairs[table] = repair
    if not repairs:
        raise PipelineError(f"{lake.uri} holds nothing of queue {queue}", queue=queue)
    return repairs
