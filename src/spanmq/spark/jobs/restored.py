"""restored: a lake or a checkpoint goes on with a database that was restored to an earlier time.

The lake keeps the rows that the database has lost, in a folder of its own. The checkpoint of a stream
is set back to the newest offset that the database knows.
"""

from contextlib import ExitStack
from dataclasses import dataclass, replace
from hashlib import md5
from pathlib import Path

import pyarrow

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq.spark import calls, rows
from spanmq.spark.jobs import parquet
from spanmq.spark.jobs.checkpoint import restore_checkpoint
from spanmq.spark.jobs.history import accept, knows
from spanmq.spark.jobs.lake import Lake, lake_at
from spanmq.spark.jobs.lake_format import known_table
from spanmq.spark.jobs.lake_table import LOST, PARTITIONS, TABLES, LakeTable, folder_of
from spanmq.spark.jobs.manifest import (
    Exported,
    Manifest,
    Ranges,
    files_of,
    format_of,
    has,
    is_taken,
    read_exported,
    read_manifests,
    union,
    without,
    write_manifest,
)
from spanmq.spark.jobs.run import Run, run_on
from spanmq.spark.reader import extent_of, queue_named


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """What a lake has of a table that the database has not, and the reverse, in rows.

    `exports` no longer count; the next one writes the rows of the database. `kept` is the folder of those that
    only the lake has, empty without any.
    """

    table: str
    only_in_lake: int
    only_in_database: int
    exports: int
    kept: str


@dataclass(frozen=True, slots=True)
class RestoredReport:
    """What was done, or with a dry run would be: the tables of a lake that differ, and batches of a checkpoint.

    `batches` of the stream are not known to the database: what it has of their messages is delivered again.
    """

    queue: str
    tables: list[RestoredTable]
    batches: int
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

    `dsn` is the database and `queue` its queue. `lake` is a folder or a URI, `checkpoint` the folder of a stream that
    is stopped. The rows that only the lake has are moved to `lost` in it; the next export writes those that only the
    database has. With `dry_run` nothing changes. Raises PipelineError if the lake or the checkpoint has nothing of the
    queue, and QueueNotFoundError.
    """
    with rows.connected(dsn) as server:
        queue = queue_named(server, queue)
    tables = _restore_lake(dsn, lake_at(lake), queue, is_dry_run=dry_run) if lake is not None else []
    batches = (
        restore_checkpoint(dsn, Path(checkpoint), queue, is_dry_run=dry_run) if checkpoint is not None else 0
    )
    return RestoredReport(queue, tables, batches, dry_run)


@dataclass(frozen=True, slots=True)
class _Lost:
    """The exports of a table that the database does not know: their ids, and the files that may have their rows.

    `last` is the number of the newest export that it knows, under the token `position`. If `is_behind`, the
    table's own catalogue went back with the database.
    """

    lake: Lake
    table: LakeTable
    exported: Exported
    last: int
    position: str | None
    ids: Ranges
    files: list[str]
    is_behind: bool


def _restore_lake(dsn: str, lake: Lake, queue: str, *, is_dry_run: bool) -> list[RestoredTable]:
    held = [each for each in TABLES if read_exported(lake, queue, each).number]
    if not held:
        raise PipelineError(f"{lake.uri} holds nothing of queue {queue}", queue=queue)
    reports = []
    for table in held:
        if is_dry_run:
            lost = _find(dsn, lake, read_exported(lake, queue, table))
            report = _write(dsn, lost, None) if lost.last < lost.exported.number else None
        else:
            with run_on(dsn, lake, queue, table, is_repair=True) as run:
                lost = _find(dsn, lake, run.exported)
                report = _replace(dsn, lost, run)
        if report is not None:
            reports.append(report)
    return reports


def _find(dsn: str, lake: Lake, exported: Exported) -> _Lost:
    """Find what a lake has since the newest export that the database knows."""
    queue, table = exported.queue, exported.table
    if knows(dsn, exported):
        return _Lost(
            lake, TABLES[table], exported, exported.number, exported.position, [], [], is_behind=False
        )
    manifests = read_manifests(lake, queue, table)
    with rows.connected(dsn) as server:
        tokens = [each.position for each in manifests]
        known = server.admin.run(calls.known_positions(queue, tokens))
    in_lake = known_table(dsn, lake, table)
    newest = {each.application: each for each in manifests}
    committed = {name: in_lake.committed(each) for name, each in newest.items()}

    def counts(each: Manifest) -> bool:
        """Return whether its commit is in the table, whose catalogue may have gone back with the database."""
        has_commit = bool(each.count or each.lost)
        return not has_commit or is_taken(committed[each.application], each.commit)

    is_behind = not all(map(counts, manifests))
    last = max((each.number for each in manifests if each.position in known and counts(each)), default=0)
    added = union([], [ids for each in manifests for ids in each.ids if each.number > last])
    ids = without(exported.ids, without(exported.ids, added))
    live = files_of(lake, queue, table) if is_behind else in_lake.read(queue)
    old = {name for each in manifests for name in each.files if each.number <= last}
    sizes = lake.sizes(folder_of(table, queue))
    files = [name for name in live if name not in old and name in sizes]
    position = next((each.position for each in manifests if each.number == last), None)
    return _Lost(lake, TABLES[table], exported, last, position, ids, files, is_behind)


def _replace(dsn: str, lost: _Lost, run: Run) -> RestoredTable | None:
    """Return the lake to the newest export that the database knows, and keep the rest in a folder of its own."""
    lake, queue, table = lost.lake, lost.exported.queue, lost.table.name
    with rows.connected(dsn) as server:
        source = rows.identity(server, queue)
    if lost.last == lost.exported.number:
        if lost.exported.source != source:
            raise PipelineError(
                f"{lake.uri} has nothing of queue {queue} that this database has lost",
                hint="The database was moved: spanmq pipeline moved.",
                queue=queue,
            )
        accept(dsn, lake, lost.exported)
        return None
    kind = format_of(lake, table) or "parquet"
    manifest = run.begin(source, kind)
    report = _write(dsn, lost, manifest)
    with rows.connected(dsn) as server:
        position = server.admin.run(calls.note_position(queue, lost.position))
    kept = [name for name in lake.sizes(_folder_of_lost(manifest)) if manifest.token in name]
    manifest = replace(
        manifest,
        position=position,
        lost=lost.ids,
        kept=kept,
        removed=lost.files if lost.is_behind else [],
    )
    spans = [] if lost.is_behind else _spans(lost)
    manifest = known_table(dsn, lake, table).remove(manifest, lost.files, spans)
    write_manifest(lake, manifest)
    run.end(manifest)
    accept(dsn, lake, read_exported(lake, queue, table))
    return report


def _spans(lost: _Lost) -> Ranges:
    """Return ranges that have the lost ids, and no others that the lake has: as few as possible."""
    others = without(lost.exported.ids, lost.ids)
    spans: Ranges = []
    for first, last in lost.ids:
        if spans and not without(
            [(spans[-1][1] + 1, first - 1)], without([(spans[-1][1] + 1, first - 1)], others)
        ):
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return spans


def _write(dsn: str, lost: _Lost, manifest: Manifest | None) -> RestoredTable:
    """Write the lost rows that the database has not into files of their own; without a manifest, count them."""
    table, queue = lost.table, lost.exported.queue
    columns = [each.name for each in table.columns if each.name != PARTITIONS[0]]
    schema = table.schema.remove(0)
    only_in_lake = in_both = 0
    names: dict[str, parquet.Writer] = {}
    with rows.connected(dsn) as server, ExitStack() as stack:
        for name in lost.files:
            for batch in parquet.read(lost.lake, [name], columns):
                part = batch.filter(
                    pyarrow.array([has(lost.ids, id_) for id_ in batch.column(table.id).to_pylist()])
                )
                is_there = _compare(server, lost, part)
                in_both += sum(is_there)
                only = part.filter(pyarrow.array([not each for each in is_there], pyarrow.bool_()))
                only_in_lake += only.num_rows
                if manifest is None or not only.num_rows:
                    continue
                day = name.split("/")[-2]
                into = f"{_folder_of_lost(manifest)}/{day}/{manifest.token}-{manifest.number:05}.parquet"
                if into not in names:
                    names[into] = stack.enter_context(parquet.Writer.opened(lost.lake, into, schema))
                names[into].add(only)
        extent = extent_of(server, queue, table.name)
        kept = without(lost.exported.ids, lost.ids)
        others = rows.count_others(server, extent, kept)
    return RestoredTable(
        table=table.name,
        only_in_lake=only_in_lake,
        only_in_database=others - in_both,
        exports=lost.exported.number - lost.last,
        kept=f"{lost.lake.uri}/{_folder_of_lost(manifest)}" if manifest is not None and names else "",
    )


def _compare(server: Client, lost: _Lost, part: pyarrow.RecordBatch) -> list[bool]:
    """Return of each row whether the database has it: its id, its time and its body."""
    table = lost.table
    given = [part.column(name).to_pylist() for name in (table.id, table.at, "body")]
    if not part.num_rows:
        return []
    extent = extent_of(server, lost.exported.queue, table.name)
    at = next(each.expression for each in table.columns if each.name == table.at)
    there = rows.sums(server, extent, at, given[0])
    return [
        there.get(id_) == (time, md5(body.encode()).hexdigest())
        for id_, time, body in zip(*given, strict=True)
    ]


def _folder_of_lost(manifest: Manifest) -> str:
    return f"{LOST}/{folder_of(manifest.table, manifest.queue)}/restore={manifest.number:08}"
