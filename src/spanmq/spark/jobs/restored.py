"""restored: a lake or a checkpoint goes on with a database that was restored to an earlier time.

The lake keeps the rows that the database has lost, in a folder of its own. The checkpoint of a stream
is set back to the newest offset that the database knows, or to the newest epoch that its queue has.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import md5
from pathlib import Path

import pyarrow

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq.spark import calls, rows
from spanmq.spark.jobs import parquet
from spanmq.spark.jobs.checkpoint import is_read_by, published_in, query_of, restore_checkpoint, restore_sink
from spanmq.spark.jobs.ducklake import repair
from spanmq.spark.jobs.history import Standing, accept, compare
from spanmq.spark.jobs.lake import Lake, lake_at
from spanmq.spark.jobs.lake_format import known_manifest_table
from spanmq.spark.jobs.lake_table import PARTITIONS, TABLES, LakeTable, folder_of
from spanmq.spark.jobs.lost import RestoredTable, first_of, folder_of_lost, write_gone
from spanmq.spark.jobs.manifest import (
    Committed,
    Exported,
    Manifest,
    files_of,
    format_of,
    read_exported,
    read_manifests,
    write_manifest,
)
from spanmq.spark.jobs.ranges import Ranges, has, size_of, union, without
from spanmq.spark.jobs.run import Run, run_on
from spanmq.spark.reader import extent_of, queue_named
from spanmq.spark.table_sink import SCHEMA, table_epochs

__all__ = ["RestoredReport", "RestoredTable", "restored"]


@dataclass(frozen=True, slots=True)
class RestoredReport:
    """The result of a repair, or the expected one of a dry run: tables of a lake that differ, batches of a checkpoint.

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
    tables = _restore_lake(dsn, lake_at(lake), queue, is_dry_run=dry_run) if lake is not None else []
    batches, epochs = 0, list[int]()
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


class _Table(Enum):
    """The contents of a lake's table, by its newest commit that changed rows."""

    WHOLE = "all that the manifests have"
    BACK = "what it shall have: its catalogue went back with the database"
    OTHER = "anything else: it is made anew"


@dataclass(frozen=True, slots=True)
class _Lost:
    """The `exports` of a table that the database does not know: their ids, and the files that may have their rows.

    `last` is the number of the newest export that it knows, under the token `position`; `base` are the files of those
    up to it. The table has used the numbers up to `taken`.
    """

    lake: Lake
    table: LakeTable
    exported: Exported
    standing: Standing
    last: int
    position: str | None
    ids: Ranges
    files: list[str]
    base: list[str]
    exports: int
    taken: int
    state: _Table

    @property
    def is_well(self) -> bool:
        """Return whether nothing needs to be done."""
        return (
            self.last == self.exported.number and not self.standing.lake_lacks and self.state is _Table.WHOLE
        )


def _restore_lake(dsn: str, lake: Lake, queue: str, *, is_dry_run: bool) -> list[RestoredTable]:
    reports: list[RestoredTable] = []
    has_any = False
    for table in TABLES:
        if repair.is_one(dsn, lake, table):
            has_any = has_any or repair.has_any(dsn, lake, queue, table)
            report = repair.restore(dsn, lake, queue, table, is_dry_run=is_dry_run)
            reports += [report] if report is not None else []
            continue
        exported = read_exported(lake, queue, table)
        if not exported.number and not compare(dsn, lake, exported).noted:
            continue
        has_any = True
        if is_dry_run:
            lost = _find(dsn, lake, exported, is_dry_run=True)
            report = None if lost.is_well else _write(dsn, lost, None)
        else:
            with run_on(dsn, lake, queue, table, is_repair=True) as run:
                lost = _find(dsn, lake, run.exported)
                report = _replace(dsn, lost, run)
        if report is not None:
            reports.append(report)
    if not has_any:
        raise PipelineError(f"{lake.uri} holds nothing of queue {queue}", queue=queue)
    return reports


def _find(dsn: str, lake: Lake, exported: Exported, *, is_dry_run: bool = False) -> _Lost:
    """Find what a lake has since the newest export that the database knows, and what its table has."""
    queue, table = exported.queue, exported.table
    standing = compare(dsn, lake, exported)
    manifests = read_manifests(lake, queue, table)
    last = exported.number
    if standing.database_lacks:
        with rows.connected(dsn) as server:
            tokens = [each.position for each in manifests]
            known = server.admin.run(calls.known_positions(queue, tokens))
        last = max((each.number for each in manifests if each.position in known), default=0)
    in_lake = known_manifest_table(dsn, lake, table)
    with_rows = [each for each in manifests if each.has_rows]
    commits = Committed()
    try:
        if with_rows:
            commits = in_lake.committed(with_rows[-1])
    except OSError:
        # A dry run leaves a catalogue as it is whose files went back.
        if not is_dry_run:
            raise
    committed = commits.of(with_rows)
    shall_have = max((each.commit for each in with_rows if each.number <= last), default=0)
    state = _Table.OTHER
    if not with_rows or committed == with_rows[-1].commit:
        state = _Table.WHOLE
    elif committed == shall_have:
        state = _Table.BACK
    added = union([], [ids for each in manifests for ids in each.ids if each.number > last])
    ids = without(exported.ids, without(exported.ids, added))
    sizes = lake.sizes(folder_of(table, queue))
    old = {name for each in manifests for name in each.files if each.number <= last}
    named = files_of(lake, queue, table)
    live = in_lake.read(queue) if state is _Table.WHOLE and ids else named
    base = [name for name in named if name in old]
    return _Lost(
        lake=lake,
        table=TABLES[table],
        exported=exported,
        standing=standing,
        last=last,
        position=next((each.position for each in manifests if each.number == last), None),
        ids=ids,
        files=[name for name in live if name not in old and name in sizes] if ids else [],
        base=base,
        exports=sum(each.number > last and each.count > 0 for each in manifests),
        taken=commits.number,
        state=_checked(lake, manifests, base, sizes) if state is _Table.OTHER else state,
    )


def _checked(lake: Lake, manifests: list[Manifest], base: list[str], sizes: Mapping[str, int]) -> _Table:
    """Raise PipelineError for a table that can't be made anew out of the files of its exports."""
    missing = [name for name in base if name not in sizes]
    if missing or any(each.lost and not each.removed for each in manifests):
        raise PipelineError(
            f"the table of {lake.uri} lacks exports, and can't be made anew: "
            + (f"its file {missing[0]} is gone" if missing else "rows of its files were removed by a repair"),
            hint="Restore a newer copy of the table or its catalogue, or export into another folder.",
        )
    return _Table.OTHER


def _replace(dsn: str, lost: _Lost, run: Run) -> RestoredTable | None:
    """Return the lake to the newest export that the database knows, and keep the rest in a folder of its own."""
    lake, queue, table = lost.lake, lost.exported.queue, lost.table.name
    source = lost.standing.source
    if lost.is_well:
        if lost.exported.source != source:
            raise PipelineError(
                f"{lake.uri} has nothing of queue {queue} that this database has lost",
                hint="The database was moved: spanmq pipeline moved.",
                queue=queue,
            )
        accept(dsn, lake, lost.exported)
        return None
    kind = format_of(lake, table) or "parquet"
    exported = lost.exported
    while exported.number < lost.taken:
        # The table went on without the lake.
        taken = Manifest(exported.number + 1, queue, exported.source, [], [], 0, 0, table, kind)
        write_manifest(lake, replace(taken, position=exported.position))
        exported = exported.followed_by(taken)
    manifest = replace(run, exported=exported).begin(source, kind)
    report = _write(dsn, lost, manifest)
    with rows.connected(dsn) as server:
        is_known = lost.position and server.admin.run(calls.known_positions(queue, [lost.position]))
        position = server.admin.run(calls.note_position(queue, lost.position if is_known else None))
    kept = [name for name in lake.sizes(_folder_of_lost(manifest)) if manifest.token in name]
    # The table goes on from whatever it has.
    manifest = replace(manifest, position=position, lost=lost.ids, kept=kept, follows=None)
    in_lake = known_manifest_table(dsn, lake, table)
    if lost.state is _Table.OTHER:
        manifest = replace(manifest, removed=lost.files, remade=True)
        in_lake.remake(manifest, lost.base)
    elif lost.state is _Table.BACK:
        manifest = replace(manifest, removed=lost.files)
        in_lake.commit(manifest, [])
    elif lost.ids:
        manifest = in_lake.remove(manifest, lost.files, _spans(lost))
    write_manifest(lake, manifest)
    run.end(manifest)
    # Older rows than those since its last export may be missing.
    accept(dsn, lake, replace(read_exported(lake, queue, table), since=""))
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
        gone = _gone(server, extent, lost)
    if manifest is not None:
        write_gone(lost.lake, _folder_of_lost(manifest), manifest.token, gone)
    return RestoredTable(
        table=table.name,
        only_in_lake=only_in_lake,
        only_in_database=others - in_both,
        exports=lost.exports,
        kept=f"{lost.lake.uri}/{_folder_of_lost(manifest)}" if manifest is not None and names else "",
        gone=size_of(gone),
        gone_ids=first_of(gone),
    )


def _gone(server: Client, extent: rows.Range, lost: _Lost) -> Ranges:
    """Return the ids that a lake had when the database noted it last, and that neither has now."""
    if not lost.standing.lake_lacks:
        return []
    queue, table = lost.exported.queue, lost.table.name
    noted = server.admin.run(calls.exported_ids(queue, lost.standing.noted_as, table))
    missing = without(noted, lost.exported.ids)
    return without(missing, rows.present(server, extent, missing))


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
    return folder_of_lost(manifest.table, manifest.queue, manifest.number)
