"""A repair of a lake with manifests: it goes on with a database, or a table, that was set back to an earlier time.

The rows that only the lake has are kept in a folder of their own, and the table has what exports up to the newest one
that the database knows have written; the next export writes the rest. A manifest notes all of it (state.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from hashlib import md5

import pyarrow
from pyarrow import compute

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq_spark import calls, rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_format import known_manifest_table
from spanmq_spark.jobs.lake_lock import Consistency, format_of
from spanmq_spark.jobs.lake_table import TABLES, LakeTable, folder_of
from spanmq_spark.jobs.lost import RestoredTable, folder_of_lost, report
from spanmq_spark.jobs.manifests.run import ManifestRun, run_on, take_numbers
from spanmq_spark.jobs.manifests.state import ManifestState, note, read_state
from spanmq_spark.jobs.manifests.store import (
    NO_TAG,
    Manifest,
    files_of,
    ids_of,
    number_of,
    read_manifests,
    tag_of,
)
from spanmq_spark.jobs.ranges import Ranges, has, without
from spanmq_spark.reader import extent_of


class _Table(Enum):
    """What the table of a lake has, by its newest commit that changed rows."""

    WHOLE = "all that the manifests have"
    BACK = "what it shall have: its catalogue went back with the database"
    OTHER = "anything else: it is made anew"


@dataclass(frozen=True, slots=True)
class _Lost:
    """The `exports` of a table that the database does not know: their `ids`, and the files that may have their rows.

    The lake has `all_ids`. `position` is the token of the newest export that the database knows. The table has the
    newest commit `committed`, has `in_table` and the files `live`, and shall have those of `base`, but for lost rows.
    """

    state: ManifestState
    table: LakeTable
    position: str | None
    all_ids: Ranges
    ids: Ranges
    files: list[str]
    live: list[str]
    base: list[str]
    exports: int
    committed: int
    in_table: _Table

    @property
    def is_well(self) -> bool:
        """Whether nothing is to be done."""
        return self.state.consistency is Consistency.CONSISTENT and self.in_table is _Table.WHOLE


def has_any(dsn: str, lake: Lake, queue: str, table: str) -> bool:
    """Return whether an export of a queue's table was noted."""
    return not read_state(dsn, lake, queue, table).is_empty


def restore(dsn: str, lake: Lake, queue: str, table: str, *, is_dry_run: bool) -> RestoredTable | None:
    """Continue with what the database knows; return what differed, None where nothing did."""
    if is_dry_run:
        lost = _find(read_state(dsn, lake, queue, table), is_dry_run=True)
        return None if lost.is_well else _write(lost, None)
    with run_on(dsn, lake, queue, table, is_repair=True) as run:
        return _replace(_find(run.state), run)


def move(dsn: str, lake: Lake, queue: str, table: str) -> bool:
    """Connect a lake to the database in which its queue is now; return whether it was of another, or refused.

    Raises PositionUnknownError if one of both lacks what the other has.
    """
    with run_on(dsn, lake, queue, table, is_repair=True) as run:
        state = run.state
        if state.is_empty or (state.is_of_source and state.refused_at is None):
            return False
        if state.consistency is not Consistency.CONSISTENT:
            raise state.error
        if not state.is_of_source:
            state = run.count(run.begin(state.source, format_of(lake, table) or "parquet"))
        note(state, ids_of(read_manifests(lake, queue, table), []))
        return True


def _find(state: ManifestState, *, is_dry_run: bool = False) -> _Lost:
    """Find what a lake has since the newest export that the database knows, and what its table has."""
    dsn, lake, queue, table = state.dsn, state.lake, state.queue, state.table
    manifests = read_manifests(lake, queue, table)
    with rows.connected(dsn) as server:
        tokens = [manifest.position for manifest in manifests]
        known = server.admin.run(calls.known_positions(queue, tokens))
    newest = next((manifest for manifest in reversed(manifests) if manifest.position in known), None)
    last = state.number
    if state.database_lacks:
        last = newest.number if newest is not None else 0
    in_lake = known_manifest_table(dsn, lake, table)
    with_rows = [manifest for manifest in manifests if manifest.has_rows]
    committed = 0
    try:
        if with_rows:
            committed = in_lake.committed(with_rows[-1])
    except OSError:
        # A dry run leaves a catalogue as it is whose files went back.
        if not is_dry_run:
            raise
    in_table = _in_table(with_rows, committed, last)
    all_ids = ids_of(manifests, [])
    lost = ids_of([manifest for manifest in manifests if manifest.number > last], [])
    ids = without(all_ids, without(all_ids, lost))
    # Engines that rewrite files put them elsewhere in the folder of the table.
    sizes = lake.sizes(table)
    old = {name for manifest in manifests for name in manifest.files if manifest.number <= last}
    named = files_of(lake, queue, table)
    is_read = in_table is _Table.OTHER or (in_table is _Table.WHOLE and ids)
    live = in_lake.read(queue) if is_read and committed else []
    files = live if in_table is _Table.WHOLE else named
    base = live
    if in_table is _Table.OTHER:
        base = [name for name in named if name in old]
        _check_base(lake, manifests, base, sizes)
    return _Lost(
        state=state,
        table=TABLES[table],
        position=newest.position if newest is not None else None,
        all_ids=all_ids,
        ids=ids,
        files=[name for name in files if name not in old and name in sizes] if ids else [],
        live=live,
        base=base,
        exports=sum(manifest.number > last and manifest.count > 0 for manifest in manifests),
        committed=committed,
        in_table=in_table,
    )


def _in_table(with_rows: list[Manifest], committed: int, last: int) -> _Table:
    """Return what a table has by its newest commit; it shall have what manifests up to `last` say."""

    def tag_until(number: int) -> int:
        tags = (tag_of(manifest.commit) for manifest in reversed(with_rows) if manifest.number <= number)
        return next(tags, 0)

    tag = tag_of(committed)
    if committed and not committed & NO_TAG:
        tag = tag_until(number_of(committed))
    if not with_rows or tag == tag_of(with_rows[-1].commit):
        return _Table.WHOLE
    return _Table.BACK if tag == tag_until(last) else _Table.OTHER


def _check_base(lake: Lake, manifests: list[Manifest], base: list[str], sizes: Mapping[str, int]) -> None:
    """Raise PipelineError for a table that can't be made anew out of the files of its exports."""
    missing = [name for name in base if name not in sizes]
    if missing or any(manifest.lost and not manifest.removed for manifest in manifests):
        raise PipelineError(
            f"the table of {lake.uri} lacks exports, and can't be made anew: "
            + (f"its file {missing[0]} is gone" if missing else "rows of its files were removed by a repair"),
            hint="Restore a newer copy of the table or its catalogue, or export into another folder.",
        )


def _replace(lost: _Lost, run: ManifestRun) -> RestoredTable | None:
    """Return the lake to the newest export that the database knows, and keep the rest in a folder of its own."""
    state = lost.state
    dsn, lake, queue, table = state.dsn, state.lake, state.queue, state.table
    if lost.is_well:
        if not state.is_of_source:
            raise PipelineError(
                f"{lake.uri} has nothing of queue {queue} that this database has lost",
                hint="The database was moved: spanmq pipeline moved.",
                queue=queue,
            )
        note(state, lost.all_ids)
        return None
    kind = format_of(lake, table) or "parquet"
    # The table may have gone on without the lake.
    source = state.source if state.newest is None else state.newest.source
    run = replace(run, state=take_numbers(state, number_of(lost.committed), source, kind))
    manifest = run.begin(state.source, kind)
    restored = _write(lost, manifest)
    with rows.connected(dsn) as server:
        position = server.admin.run(calls.note_position(queue, lost.position))
    sizes = lake.sizes(table)
    rest = [name for name in lake.sizes(folder_of(table, queue)) if manifest.token in name]
    # The table goes on from whatever it has, and older rows than those since its last export may be missing.
    manifest = replace(
        manifest, position=position, files=rest, lost=lost.ids, follows=None, since="", compared_at=0.0
    )
    if lost.in_table is not _Table.WHOLE:
        manifest = replace(manifest, removed=lost.files, remade=True)
    elif kind == "parquet":
        manifest = replace(manifest, removed=lost.files)
    shall_have = {*lost.base, *rest} - {*lost.files}
    added = [parquet.LakeFile(name, 0, sizes[name]) for name in shall_have.difference(lost.live)]
    state = run.count(manifest, added, {*lost.live} - shall_have)
    note(state, without(lost.all_ids, lost.ids))
    return restored


def _write(lost: _Lost, manifest: Manifest | None) -> RestoredTable:
    """Write the lost rows that the database has not into files of their own; without a manifest, count them.

    What else the files of the table have, goes into new files of it.
    """
    dsn, lake, table, queue = lost.state.dsn, lost.state.lake, lost.table, lost.state.queue
    into = known_manifest_table(dsn, lake, table.name).file_schema
    only_in_lake = in_both = 0
    with (
        rows.connected(dsn) as server,
        parquet.FilesWriter.opened(lake, table.schema.remove(0)) as kept,
        parquet.FilesWriter.opened(lake, into) as rest,
    ):
        for name in lost.files:
            for batch in parquet.read(lake, [name], into.names):
                ids = batch.column(table.id).to_pylist()
                is_lost = pyarrow.array([has(lost.ids, id_) for id_ in ids], pyarrow.bool_())
                part = batch.filter(is_lost)
                is_there = _compare(server, lost, part)
                in_both += sum(is_there)
                only = part.filter(compute.invert(pyarrow.array(is_there, pyarrow.bool_())))
                only_in_lake += only.num_rows
                if manifest is None:
                    continue
                file = f"{name.split('/')[-2]}/{manifest.token}-{manifest.number:05}.parquet"
                kept.add(f"{_folder_of_lost(manifest)}/{file}", only)
                if lost.in_table is _Table.WHOLE:
                    others = batch.filter(compute.invert(is_lost))
                    rest.add(f"{folder_of(table.name, queue)}/{file}", others)
        extent = extent_of(server, queue, table.name)
        in_database = rows.count_others(server, extent, without(lost.all_ids, lost.ids))
        gone = _gone(server, extent, lost)
    return report(
        lake,
        f"{_folder_of_lost(manifest)}/{manifest.token}" if manifest is not None else None,
        table=table.name,
        kept=_folder_of_lost(manifest) if manifest is not None else "",
        only_in_lake=only_in_lake,
        only_in_database=in_database - in_both,
        exports=lost.exports,
        gone=gone,
    )


def _gone(server: Client, extent: rows.Range, lost: _Lost) -> Ranges:
    """Return the ids that a lake had when the database noted it last, and that neither has now."""
    if not lost.state.lake_lacks:
        return []
    missing = without(lost.state.ids_in(None), lost.all_ids)
    return without(missing, rows.present(server, extent, missing))


def _compare(server: Client, lost: _Lost, part: pyarrow.RecordBatch) -> list[bool]:
    """Return of each row whether the database has it: its id, its time and its body."""
    table = lost.table
    values = [part.column(name).to_pylist() for name in (table.id, table.at, "body")]
    if not part.num_rows:
        return []
    extent = extent_of(server, lost.state.queue, table.name)
    at = next(column.expression for column in table.columns if column.name == table.at)
    there = rows.sums(server, extent, at, values[0])
    return [
        there.get(id_) == (time, None if body is None else md5(body.encode()).hexdigest())
        for id_, time, body in zip(*values, strict=True)
    ]


def _folder_of_lost(manifest: Manifest) -> str:
    return folder_of_lost(manifest.table, manifest.queue, manifest.number)
