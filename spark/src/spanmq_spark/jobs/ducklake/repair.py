"""restored and moved over a DuckLake: what the lake lacks is exported again, or named; see the states in run.py."""

from __future__ import annotations

import contextlib
import uuid
from dataclasses import dataclass, replace

import pyarrow

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs import parquet
from spanmq_spark.jobs.ducklake.catalogue import Catalogue, DataFile, Noted
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
from spanmq_spark.jobs.lake_table import PARTITIONS, TABLES, folder_of
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
        state = read_state(Catalogue(server, lake, TABLES[table]), queue)
        return bool(state.noted.number or state.recorded)


def restore(dsn: str, lake: Lake, queue: str, table: str, *, is_dry_run: bool) -> RestoredTable | None:
    """Continue with the files that are there; return what differed, None where nothing did."""
    opened = rows.connected(dsn) if is_dry_run else alone(dsn, lake, queue, table)
    with opened as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(catalogue, queue)
        if not state.is_of_source:
            check(server, lake, queue, table, state, is_dry_run=is_dry_run)
        if state.consistency is Consistency.CONSISTENT:
            if state.refused_at is not None and not is_dry_run:
                _accept(catalogue, state)
            return None
        contents = _find(catalogue, state)
        return _write(catalogue, contents, None) if is_dry_run else _replace(catalogue, contents)


def move(dsn: str, lake: Lake, queue: str, table: str) -> bool:
    """Connect a catalogue to the database in which it is now; return whether it was of another.

    Raises PositionUnknownError if the database has not noted the catalogue's newest export.
    """
    with alone(dsn, lake, queue, table) as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(catalogue, queue)
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
    names = catalogue.lake.sizes(folder_of(catalogue.table.name, queue))
    return [name for name in names if name.rpartition("/")[2].startswith(PREFIX) and name not in known]


def _accept(catalogue: Catalogue, state: CatalogueState) -> None:
    newest = state.noted.number, state.noted.position
    call = calls.note_export(state.queue, catalogue.lake.uri, state.table, state.ids, None, newest)
    catalogue.server.admin.run(call)


def _find(catalogue: Catalogue, state: CatalogueState) -> _Contents:
    missing = tuple(missing_files(catalogue.lake, state.files, is_all=True))
    there = [file.name for file in state.files if file not in missing]
    ids = _ids(catalogue, there)
    server = catalogue.server
    extent = extent_of(server, state.queue, state.table)
    lacking = without(state.ids, ids)
    return _Contents(
        state=state,
        missing=missing,
        ids=ids,
        lacking=without(lacking, rows.present(server, extent, lacking)),
        only_in_database=rows.count_others(server, extent, ids),
        orphans=orphans_of(catalogue, state.queue),
    )


def _ids(catalogue: Catalogue, names: list[str]) -> Ranges:
    ids: Ranges = []
    for batch in parquet.read(catalogue.lake, names, [catalogue.table.id]):
        ids = union(ids, [(id_, id_) for id_ in batch.column(0).to_pylist()])
    return ids


def _replace(catalogue: Catalogue, contents: _Contents) -> RestoredTable:
    """End the files that are missing, and note what the others have, by one transaction."""
    state, server = contents.state, catalogue.server
    number = max(state.noted.number, state.recorded or 0) + 1
    folder = folder_of_lost(state.table, state.queue, number)
    restored = _write(catalogue, contents, f"{folder}/{PREFIX}{uuid.uuid4().hex}")
    known = server.admin.run(calls.known_positions(state.queue, [state.noted.position or ""]))
    with server.connection.transaction():
        catalogue.create()
        noted = Noted(number, state.source, n=size_of(contents.ids))
        note_newest(
            catalogue, state, noted, (contents.ids, None), follows=state.noted.position if known else None
        )
        message = f"spanmq restored queue {state.queue}"
        catalogue.add([], message, [file.id for file in contents.missing])
    return restored


def _write(catalogue: Catalogue, contents: _Contents, into: str | None) -> RestoredTable:
    """Write the lacking rows that files without a name in the catalogue have, by day; without `into`, count them."""
    state, lake, table = contents.state, catalogue.lake, catalogue.table
    schema = table.schema.remove(table.schema.get_field_index(PARTITIONS[0]))
    kept: Ranges = []
    with parquet.FilesWriter.opened(lake, schema) as files:
        for name in contents.orphans if contents.lacking else ():
            # A killed task may have left it half written.
            with contextlib.suppress(pyarrow.ArrowInvalid):
                for batch in parquet.read(lake, [name], schema.names):
                    lacking = without(contents.lacking, kept)
                    ids = batch.column(table.id).to_pylist()
                    part = batch.filter(pyarrow.array([has(lacking, id_) for id_ in ids], pyarrow.bool_()))
                    kept = union(kept, [(id_, id_) for id_ in part.column(table.id).to_pylist()])
                    if into is not None:
                        folder, _, token = into.rpartition("/")
                        files.add(f"{folder}/{name.split('/')[-2]}/{token}.parquet", part)
    snapshots = {file.snapshot for file in contents.missing}
    return report(
        lake,
        into,
        table=state.table,
        only_in_lake=size_of(kept),
        only_in_database=contents.only_in_database,
        exports=max(len(snapshots), abs((state.recorded or 0) - state.noted.number)),
        gone=without(contents.lacking, kept),
    )
