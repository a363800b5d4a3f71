"""moved: a lake and a checkpoint are told that their database has another identity."""

import json
from dataclasses import dataclass
from pathlib import Path

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq.spark import rows
from spanmq.spark.jobs.checkpoint import is_of, write_lines
from spanmq.spark.jobs.ducklake import repair
from spanmq.spark.jobs.history import accept, compare
from spanmq.spark.jobs.lake import Lake, lake_at
from spanmq.spark.jobs.manifest import format_of, read_exported, write_manifest
from spanmq.spark.jobs.run import run_on
from spanmq.spark.reader import queue_named

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
        source = rows.identity(server, queue)
        receivers = {each.receiver_id for each in server.admin.receivers.list(queue)}
    tables, offsets = [], 0
    if lake is not None:
        tables = _move_lake(dsn, lake_at(lake), queue, source)
    if checkpoint is not None:
        system = source.partition("/")[0]
        offsets = _move_checkpoint(Path(checkpoint), queue, system, receivers)
    return MovedReport(queue, tables, offsets)


def _move_lake(dsn: str, lake: Lake, queue: str, source: str) -> list[str]:
    tables, has_any = [], False
    for table in ("archive", "dead_letters"):
        if repair.is_one(dsn, lake, table):
            tables += [table] if repair.move(dsn, lake, queue, table) else []
            has_any = has_any or repair.has_any(dsn, lake, queue, table)
            continue
        with run_on(dsn, lake, queue, table, is_repair=True) as run:
            exported = run.exported
            found = compare(dsn, lake, exported)
            if not exported.number or (exported.source == source and found.refused_at is None):
                continue
            if not found.is_well:
                raise PositionUnknownError(
                    f"{lake.uri} has messages of queue {queue} that this database has lost"
                    if found.database_lacks
                    else f"{lake.uri} lacks exports of queue {queue} that this database has noted",
                    hint="One of them was restored to an earlier time, or is another: spanmq pipeline restored.",
                    queue=queue,
                )
            if exported.source != source:
                manifest = run.begin(source, format_of(lake, table) or "parquet")
                write_manifest(lake, manifest)
                run.end(manifest)
            accept(dsn, lake, exported)
            tables.append(table)
    if not (
        tables
        or has_any
        or any(read_exported(lake, queue, each).number for each in ("archive", "dead_letters"))
    ):
        raise PipelineError(f"{lake.uri} holds nothing of queue {queue}", queue=queue)
    return tables


def _move_checkpoint(checkpoint: Path, queue: str, system: str, receivers: set[str]) -> int:
    """Write the system's identifier into each offset of the queue, and return how many that were."""
    changed = 0
    found = False
    for path in sorted((checkpoint / "offsets").glob("[0-9]*")):
        lines = path.read_text("utf-8").splitlines()
        # A version, what Spark notes of the batch, and the offset of each source.
        for place, line in enumerate(lines[2:], 2):
            source = json.loads(line) if line.startswith("{") else {}
            # A source of several queues has an offset of each.
            for offset in source.get("queues", {"": source}).values():
                if "receiver" not in offset or not is_of(offset, queue):
                    continue
                found = True
                if offset["receiver"] not in receivers:
                    raise PipelineError(
                        f"queue {queue} has no receiver {offset['receiver']}, which {checkpoint} is of",
                        hint="This database is not the checkpoint's. Use a new checkpoint.",
                        queue=queue,
                    )
                if offset["system"] != system:
                    offset["system"] = system
                    lines[place] = json.dumps(source)
                    changed += 1
        write_lines(path, lines)
    if not found:
        raise PipelineError(
            f"{checkpoint} is not the checkpoint of a stream over queue {queue}",
            hint="A stream over an archive needs a new one, with startingTimestamp.",
            queue=queue,
        )
    return changed
