"""What goes on after a restore or a move: restored, moved, and orphans.

A lake keeps the rows that a restored database has lost, in a folder of its own. The checkpoint of a stream is set back
to the newest offset that the database knows, or to the newest epoch that its queue has. A lake or a checkpoint of a
database that was moved gets its new identity. Files of a DuckLake that its catalogue does not know are of killed
exports, and of times that a restore has undone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from spanmq.errors import PipelineError
from spanmq_spark import rows
from spanmq_spark.jobs.checkpoint import (
    is_read_by,
    move_checkpoint,
    published_in,
    query_of,
    restore_checkpoint,
    restore_sink,
)
from spanmq_spark.jobs.ducklake import repair as by_catalogue
from spanmq_spark.jobs.ducklake.catalogue import Catalogue
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_lock import alone
from spanmq_spark.jobs.lake_table import TABLES
from spanmq_spark.jobs.lost import RestoredTable
from spanmq_spark.jobs.manifests import repair as by_manifests
from spanmq_spark.reader import queue_named
from spanmq_spark.table_sink import SCHEMA, table_epochs

__all__ = [
    "MovedReport",
    "OrphansReport",
    "RestoredReport",
    "RestoredTable",
    "moved",
    "orphans",
    "restored",
]


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


@dataclass(frozen=True, slots=True)
class MovedReport:
    """The result of a move: the changed tables of a lake, and offsets of a checkpoint."""

    queue: str
    tables: list[str]
    offsets: int


@dataclass(frozen=True, slots=True)
class OrphansReport:
    """The `names` in a `lake` of files of a `queue` that count nowhere, and whether they `were_deleted`."""

    queue: str
    lake: str
    names: list[str]
    were_deleted: bool


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


def moved(
    dsn: str, queue: str, *, lake: str | Path | None = None, checkpoint: str | Path | None = None
) -> MovedReport:
    """Connect a `lake`, or the `checkpoint` of a stream over a `queue`, to this database in place of another.

    `dsn` is this database; a lake is a folder or a URI, a checkpoint a folder. After pg_upgrade, a dump and restore, or
    a new name, the database must have the content of the old one: raises PositionUnknownError if it does not know the
    position of the lake, PipelineError if the checkpoint's receiver does not exist.
    """
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
        system = rows.identity(server, queue).partition("/")[0]
        receivers = {receiver.receiver_id for receiver in server.admin.receivers.list(queue)}
    tables, offsets = [], 0
    if lake is not None:
        place = lake_at(lake)
        repairs = repairs_of(dsn, place, queue).items()
        tables = [table for table, repair in repairs if repair.move(dsn, place, queue, table)]
    if checkpoint is not None:
        offsets = move_checkpoint(Path(checkpoint), queue, system, receivers)
    return MovedReport(queue, tables, offsets)


def orphans(dsn: str, queue: str, lake: str | Path, *, delete: bool = False) -> OrphansReport:
    """List the files that exports of a `queue` wrote and the catalogue of a DuckLake does not know, or delete them.

    `dsn` is the database that has the catalogue, and `lake` a folder or the URI of an object store. Exports that were
    killed leave such files, and so does a database that was restored to an earlier time. The catalogue of a copy of the
    database may still know them, which is why no export deletes them. Raises PipelineError where an export of the
    queue is under way, or the lake is of another format, QueueNotFoundError for a queue that does not exist.
    """
    place = lake_at(lake)
    names: list[str] = []
    is_any = False
    for table in TABLES:
        if by_catalogue.is_one(dsn, place, table):
            is_any = True
            with alone(dsn, place, queue, table) as server:
                unknown = by_catalogue.orphans_of(Catalogue(server, place, TABLES[table]), queue)
                for name in unknown if delete else ():
                    place.delete(name)
                names += unknown
    if not is_any:
        raise PipelineError(
            f"{place.uri} is not a DuckLake", hint="Exports into lakes of other formats delete such files."
        )
    return OrphansReport(queue, str(lake), names, delete)


class Repair(Protocol):
    """What continues a lake after a restore or a move: the module manifests.repair, or ducklake.repair."""

    def has_any(self, dsn: str, lake: Lake, queue: str, table: str) -> bool: ...
    def restore(
        self, dsn: str, lake: Lake, queue: str, table: str, *, is_dry_run: bool
    ) -> RestoredTable | None: ...
    def move(self, dsn: str, lake: Lake, queue: str, table: str) -> bool: ...


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
