"""restored: a lake or a checkpoint goes on with a database that was restored to an earlier time.

The lake keeps the rows that the database has lost, in a folder of its own. The checkpoint of a stream
is set back to the newest offset that the database knows, or to the newest epoch that its queue has.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spanmq.errors import PipelineError
from spanmq_spark import rows
from spanmq_spark.jobs.checkpoint import is_read_by, published_in, query_of, restore_checkpoint, restore_sink
from spanmq_spark.jobs.ducklake import repair as by_catalogue
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.lost import RestoredTable
from spanmq_spark.jobs.manifests import repair as by_manifests
from spanmq_spark.reader import queue_named
from spanmq_spark.table_sink import SCHEMA, table_epochs

__all__ = ["RestoredReport", "RestoredTable", "restored"]


@dataclass(frozen=True, slots=True)
class RestoredReport:
    """What was done, or with a dry run would be: the tables of a lake that differ, and batches of a checkpoint.

    `batches` of the stream are not known to the database: what it has of their messages is delivered again. `epochs`
    are those that the stream has written and the queue lacks: they run again.
    """

    queue: str
    tables: list[RestoredTable]
    batches: int
    epochs: list[int]
    is_dry_run: bool


def restored(
    dsn: str,
    queue: str,
    *,
    lake: str | Path | None = None,
    checkpoint: str | Path | None = None,
    dry_run: bool = False,
) -> RestoredReport:
    """Continue a lake, or the checkpoint of a stream, with a database that was restored to an earlier time.

    `dsn` is the database and `queue` its queue. `lake` is a folder or a URI, `checkpoint` the folder of a stream
    that is stopped, which reads the queue or writes into it. The rows that only the lake has are moved to `lost` in it;
    the next export writes those that only the database has. With `dry_run` nothing changes. Raises PipelineError if the
    lake or the checkpoint has nothing of the queue, and QueueNotFoundError.
    """
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
    tables, batches, epochs = list[RestoredTable](), 0, list[int]()
    if lake is not None:
        place = lake_at(lake)
        for table, repair in repairs_of(dsn, place, queue).items():
            if (report := repair.restore(dsn, place, queue, table, is_dry_run=dry_run)) is not None:
                tables.append(report)
    if checkpoint is not None and is_read_by(Path(checkpoint), queue):
        batches = restore_checkpoint(dsn, Path(checkpoint), queue, is_dry_run=dry_run)
    elif checkpoint is not None:
        published = published_in(dsn, queue, Path(checkpoint))
        epochs = restore_sink(Path(checkpoint), f"queue {queue}", published, is_dry_run=dry_run)
    return RestoredReport(queue, tables, batches, epochs, dry_run)


def restored_table(
    dsn: str, table: str, checkpoint: str | Path, *, stage_schema: str = SCHEMA, dry_run: bool = False
) -> RestoredReport:
    """Continue the checkpoint of a stream that writes into a table, after their database was restored.

    `dsn` is the database, `table` its table, `stage_schema` the schema of the ledger, and `checkpoint` the folder of
    the stream, which is stopped. Epochs that the ledger lacks run again; the report, whose `queue` is the table, has
    them. With `dry_run` nothing changes. Raises PipelineError where the checkpoint has forgotten them.
    """
    published = table_epochs(dsn, table, query_of(Path(checkpoint)), stage_schema)
    epochs = restore_sink(Path(checkpoint), f"the table {table}", published, is_dry_run=dry_run)
    return RestoredReport(table, [], 0, epochs, dry_run)


class Repair(Protocol):
    """What continues a lake after a restore or a move: by its manifests, or by its DuckLake's catalogue."""

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
