"""moved: a lake and a checkpoint are told that their database has another identity."""

from dataclasses import dataclass
from pathlib import Path

from spanmq_spark import rows
from spanmq_spark.jobs.checkpoint import move_checkpoint
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.restored import repairs_of
from spanmq_spark.reader import queue_named

__all__ = ["MovedReport", "moved"]


@dataclass(frozen=True, slots=True)
class MovedReport:
    """The result of a move: the changed tables of a lake, and offsets of a checkpoint."""

    queue: str
    tables: list[str]
    offsets: int


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
