"""restored and moved over a DuckLake: what the lake lacks is exported again, or named; see the states in run.py."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.ducklake.catalogue import Catalogue, DataFile, Noted, schema_of
from spanmq_spark.jobs.ducklake.format import new_file
from spanmq_spark.jobs.ducklake.run import (
    KIND,
    PREFIX,
    CatalogueState,
    missing_files,
    note_newest,
    read_state,
)
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_lock import Consistency, alone, check, format_of
from spanmq_spark.jobs.lake_table import TABLES, folder_of, lost_table
from spanmq_spark.jobs.lost import RestoredTable, folder_of_lost, report
from spanmq_spark.jobs.ranges import Ranges, has, size_of, union, without
from spanmq_spark.reader import extent_of


@dataclass(frozen=True, slots=True)
class _Contents:
    """The rows of a queue's table that a lake has, and those that it lacks.

    `ids` are in files that are there, `missing` files are not. `lacking` ids were exported and are in neither the files
    nor the database, and `orphans` are files that no catalogue names, which may have them.
    """

    state: CatalogueState
    missing: tuple[DataFile, ...]
    ids: Ranges
    lacking: Ranges
    only_in_database: int
    orphans: list[str]


def is_one(dsn: str, lake: Lake, table: str) -> bool:
    """Return whether a lake's table is a DuckLake's; where the lake has lost what says so, by the catalogue."""
    kind = format_of(lake, table)
    if kind is not None:
        return kind == KIND
    with rows.connected(dsn) as server, contextlib.suppress(PipelineError):
        return Catalogue(server, lake, TABLES[table]).exists()
    return False


def has_any(dsn: str, lake: Lake, queue: str, table: str) -> bool:
    """Return whether an export of a queue's table was noted."""
    with rows.connected(dsn) as server:
        state = read_state(dsn, Catalogue(server, lake, TABLES[table]), queue)
        return bool(state.noted.number or state.recorded)


def restore(dsn: str, lake: Lake, queue: str, table: str, *, is_dry_run: bool) -> RestoredTable | None:
    """Continue with the files that are there; return what differed, None where nothing did."""
    opened = rows.connected(dsn) if is_dry_run else alone(dsn, lake, queue, table)
    with opened as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(dsn, catalogue, queue)
        if not state.is_of_source:
            check(server, state, is_dry_run=is_dry_run)
        if state.consistency is Consistency.CONSISTENT:
            if state.refused_at is not None and not is_dry_run:
                _accept(catalogue, state)
            return None
        contents = _find(catalogue, state)
        if is_dry_run:
            kept = _ranges(_lacking(catalogue, contents), catalogue.table.id)
            return _report(catalogue, contents, kept, None)
        return _replace(catalogue, contents)


def move(dsn: str, lake: Lake, queue: str, table: str) -> bool:
    """Connect a catalogue to the database in which it is now; return whether it was of another.

    Raises PositionUnknownError if the database has not noted the catalogue's newest export.
    """
    with alone(dsn, lake, queue, table) as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(dsn, catalogue, queue)
        if state.is_of_source:
            return False
        here = replace(state.noted, source=state.source)
        if state.consistency is Consistency.CATALOGUE_BACK:
            raise PositionUnknownError(
                f"the catalogue of {lake.uri} has export {state.noted.number} of queue {queue}, which this database has"
                " not noted",
                hint="The queue was dropped and created again, or one of them was restored: use another folder.",
                queue=queue,
            )
        catalogue.note(queue, here, here.position)
        return True


def orphans_of(catalogue: Catalogue, queue: str) -> list[str]:
    """Return the files of exports that the catalogue does not know."""
    known = catalogue.names() if catalogue.exists() else set()
    tables = catalogue.table, lost_table(catalogue.table)
    names = [name for table in tables for name in catalogue.lake.sizes(folder_of(table.name, queue))]
    return [name for name in names if name.rpartition("/")[2].startswith(PREFIX) and name not in known]


def _accept(catalogue: Catalogue, state: CatalogueState) -> None:
    newest = state.noted.number, state.noted.position
    call = calls.note_export(state.queue, catalogue.lake.uri, state.table, state.ids_in(None), None, newest)
    catalogue.server.admin.run(call)


def _find(catalogue: Catalogue, state: CatalogueState) -> _Contents:
    missing = tuple(missing_files(catalogue.lake, state.files, is_all=True))
    there = [file.name for file in state.files if file not in missing]
    ids = _ranges(parquet.read(catalogue.lake, there, [catalogue.table.id]), catalogue.table.id)
    server = catalogue.server
    extent = extent_of(server, state.queue, state.table)
    lacking = without(state.ids_in(None), ids)
    return _Contents(
        state=state,
        missing=missing,
        ids=ids,
        lacking=without(lacking, rows.present(server, extent, lacking)),
        only_in_database=rows.count_others(server, extent, ids),
        orphans=orphans_of(catalogue, state.queue),
    )


def _replace(catalogue: Catalogue, contents: _Contents) -> RestoredTable:
    """End the files that are missing, note what the others have, and keep rows of orphans, by one transaction."""
    state, server = contents.state, catalogue.server
    number = max(state.noted.number, state.recorded or 0) + 1
    token = f"{PREFIX}{uuid.uuid4().hex}"
    lost = replace(catalogue, table=lost_table(catalogue.table))
    files = parquet.write(
        lost.lake, lost.table, state.queue, token, _lacking(catalogue, contents), schema_of(lost.table)
    )
    into = f"{folder_of_lost(state.table, state.queue, number)}/{token}"
    restored = _report(catalogue, contents, parquet.ids_of(files), into)
    known = server.admin.run(calls.known_positions(state.queue, [state.noted.position or ""]))
    new = [new_file(lost.lake, lost.table, state.queue, file) for file in parquet.files_of(files)]
    with server.connection.transaction():
        catalogue.create()
        noted = Noted(number, state.source)
        note_newest(
            catalogue, state, noted, (contents.ids, None), follows=state.noted.position if known else None
        )
        message = f"spanmq restored queue {state.queue}"
        catalogue.add([], message, [file.id for file in contents.missing])
        if new:
            lost.create()
            lost.add(new, message)
    return restored


def _lacking(catalogue: Catalogue, contents: _Contents) -> Iterator[pyarrow.RecordBatch]:
    """Yield the lacking rows that files without a name in the catalogue have, each once."""
    table = catalogue.table
    lacking = contents.lacking
    for name in contents.orphans if lacking else ():
        # A killed task may have left it half written.
        with contextlib.suppress(pyarrow.ArrowInvalid):
            for batch in parquet.read(catalogue.lake, [name], table.schema.names):
                ids = batch.column(table.id).to_pylist()
                part = batch.filter(pyarrow.array([has(lacking, id_) for id_ in ids], pyarrow.bool_()))
                lacking = without(lacking, _ranges([part], table.id))
                yield part


def _ranges(batches: Iterable[pyarrow.RecordBatch], column: str) -> Ranges:
    """Return the ids that batches have."""
    ids: Ranges = []
    for batch in batches:
        ids = union(ids, [(id_, id_) for id_ in batch.column(column).to_pylist()])
    return ids


def _report(catalogue: Catalogue, contents: _Contents, kept: Ranges, into: str | None) -> RestoredTable:
    state, table = contents.state, catalogue.table
    snapshots = {file.snapshot for file in contents.missing}
    return report(
        catalogue.lake,
        into,
        table=state.table,
        kept=folder_of(lost_table(table).name, state.queue),
        only_in_lake=size_of(kept),
        only_in_database=contents.only_in_database,
        exports=max(len(snapshots), abs((state.recorded or 0) - state.noted.number)),
        gone=without(contents.lacking, kept),
    )
