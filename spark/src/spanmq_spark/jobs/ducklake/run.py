"""A run on a queue's table of a DuckLake: an export is written or it is not, and there is nothing between.

    written by tasks: files that no catalogue names     nothing counts; killed, they stay until `orphans` deletes them
      |   one transaction of PostgreSQL, of the session that has the lock of the run
      v
    committed: the catalogue names the files, and says  the lake has them, retention may delete the rows,
    which export it was; the database has noted the     and all of it goes back with the database
    same export, its ids and its position

What is newest has one answer, the `consistency`, out of three facts: the export that the catalogue has noted, the one
that the database has noted of the lake, and whether the newest files are there.

    catalogue  database  files     consistency      what is to be done
    none       none      -         CONSISTENT       the first export creates the catalogue
    n          n         there     CONSISTENT       export n + 1
    n          n         missing   LAKE_BACK        the lake went back, or lost files: `restored`
    n          other     -         CATALOGUE_BACK   the catalogue went back without the database: `restored`
    another queue's, or of another database         not of source: another folder, or `moved`

A database that goes back takes queue, archive and catalogue with it, so they are consistent. What a task has read of
a database before that is known by the witnesses: the transaction raises PositionUnknownError for them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spanmq.errors import PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs.ducklake.catalogue import Catalogue, DataFile, Noted
from spanmq_spark.jobs.ducklake.format import new_file
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_lock import (
    Consistency,
    LakeState,
    Seen,
    alone,
    came_first,
    check,
    note_format,
)
from spanmq_spark.jobs.lake_table import TABLES, folder_of
from spanmq_spark.jobs.manifests.store import Manifest
from spanmq_spark.jobs.parquet import LakeFile
from spanmq_spark.jobs.ranges import Ranges, by_block, union

KIND: Final = "ducklake"
# The names of files of exports begin with it; those that DuckDB writes do not.
PREFIX: Final = "spanmq-"
_HINT: Final = "spanmq pipeline restored shows what is missing, and goes on. Or use another folder."


@dataclass(frozen=True, slots=True)
class CatalogueState(LakeState):
    """What is known of a queue's table.

    `noted` is the newest export by the catalogue, and `recorded` the number of that by the database. The table has
    `files`, of which the lake lacks those that are `missing`.
    """

    noted: Noted
    recorded: int | None
    files: tuple[DataFile, ...]
    missing: tuple[DataFile, ...]

    @property
    def is_of_source(self) -> bool:
        """Whether the catalogue is of this database and queue, or has no export yet."""
        return self.noted.source in (self.source, "")

    @property
    def error(self) -> PositionUnknownError:
        """What is wrong, with a hint for exports."""
        message = (
            f"the catalogue of {self.lake.uri} has export {self.noted.number} of queue {self.queue} as its newest, and"
            f" the database has noted {self.recorded or 0}"
        )
        if self.consistency is Consistency.LAKE_BACK:
            lacking = self.missing[0].name
            message = f"{self.lake.uri} lacks files of queue {self.queue} that its catalogue names, such as {lacking}"
        return PositionUnknownError(message, hint=_HINT, queue=self.queue)


@dataclass(frozen=True, slots=True)
class CatalogueRun:
    """The only run on a queue's table, which had the `state` before, through the session that has its lock."""

    catalogue: Catalogue
    state: CatalogueState

    def begin(self, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
        """Return what files will be written for; nothing notes them before they count."""
        queue, table = self.state.queue, self.state.table
        note_format(self.catalogue.lake, table, format)
        token = f"{PREFIX}{uuid.uuid4().hex}"
        return Manifest(self.state.noted.number + 1, queue, source, [], [], 0, 0, table, format, token=token)

    def commit(
        self, manifest: Manifest, files: Sequence[LakeFile], witnesses: Sequence[str], seen: Seen
    ) -> None:
        """Add the files to the catalogue, and note the export, by one transaction."""
        before, catalogue = self.state, self.catalogue
        new = [new_file(catalogue.lake, catalogue.table, manifest.queue, file) for file in files]
        blocks = sorted(by_block(manifest.ids))
        ids = union(before.ids_in(blocks), manifest.ids)
        with catalogue.server.connection.transaction():
            catalogue.create()
            noted = Noted(manifest.number, manifest.source, None, seen.since, seen.compared_at)
            note_newest(catalogue, before, noted, (ids, blocks), witnesses, follows=before.noted.position)
            catalogue.add(new, f"spanmq export {manifest.number} of queue {manifest.queue}")
        # Of attempts of tasks that did not count.
        for name in catalogue.lake.sizes(folder_of(manifest.table, manifest.queue)):
            if name.rpartition("/")[2].startswith(manifest.token) and name not in manifest.files:
                catalogue.lake.delete(name)

    def drop(self, manifest: Manifest) -> None:
        """Do nothing: an export into a DuckLake has no draft."""

    def note(self, seen: Seen) -> None:
        """Note what was seen where nothing is new; without any export, that retention waits for the lake."""
        queue, server = self.state.queue, self.catalogue.server
        with server.connection.transaction():
            noted = self.catalogue.noted(queue) if self.catalogue.exists() else Noted()
            if noted.number:
                noted = replace(noted, since=seen.since, compared_at=seen.compared_at)
                self.catalogue.note(queue, noted, noted.position)
            elif self.state.recorded is None:
                nothing: tuple[Ranges, list[int]] = [], []
                call = calls.note_export(
                    queue, self.catalogue.lake.uri, self.state.table, *nothing, (0, None)
                )
                server.admin.run(call)


def note_newest(
    catalogue: Catalogue,
    before: CatalogueState,
    noted: Noted,
    ids: tuple[Ranges, list[int] | None],
    witnesses: Sequence[str] = (),
    *,
    follows: str | None,
) -> None:
    """Note an export with its ids, of all or of some blocks, in the catalogue and the database.

    It is for the transaction that adds the files.

    Raises PositionUnknownError for a database that lacks what the export `follows`, or a witness, and PipelineError
    where another run came first.
    """
    queue, server = before.queue, catalogue.server
    position = server.admin.run(calls.note_position(queue, follows, witnesses))
    newest = noted.number, position
    server.admin.run(calls.note_export(queue, catalogue.lake.uri, catalogue.table.name, *ids, newest))
    if not catalogue.note(queue, replace(noted, position=position), before.noted.position):
        raise came_first(catalogue.lake, queue)


@contextlib.contextmanager
def run_on(dsn: str, lake: Lake, queue: str, table: str) -> Iterator[CatalogueRun]:
    """Be the only run on a queue's table for a block; raises what `check` and run.alone() raise."""
    with alone(dsn, lake, queue, table) as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(dsn, catalogue, queue)
        check(server, state)
        yield CatalogueRun(catalogue, state)


def look(dsn: str, lake: Lake, queue: str, table: str) -> CatalogueState:
    """Return what is known of a queue's table; raises what `check` raises, and changes nothing."""
    with rows.connected(dsn) as server:
        catalogue = Catalogue(server, lake, TABLES[table])
        state = read_state(dsn, catalogue, queue)
        check(server, state, is_dry_run=True)
        return state


def read_state(dsn: str, catalogue: Catalogue, queue: str) -> CatalogueState:
    """Return what is known of a queue's table."""
    server, lake, table = catalogue.server, catalogue.lake, catalogue.table.name
    is_there = catalogue.exists()
    noted = catalogue.noted(queue) if is_there else Noted()
    note = server.admin.run(calls.noted_export(queue, lake.uri, table, ""))
    _, number, token, refused_at = note or (lake.uri, None, None, None)
    files = tuple(catalogue.files_named(queue)) if is_there else ()
    missing = tuple(missing_files(lake, files))
    newest = max((file.snapshot for file in files), default=0)
    consistency = Consistency.CONSISTENT
    if (noted.number, noted.position) != (number or 0, token):
        consistency = Consistency.CATALOGUE_BACK
    elif noted.number and any(file.snapshot == newest for file in missing):
        consistency = Consistency.LAKE_BACK
    seen = Seen(noted.since, noted.compared_at)
    known = (dsn, lake, queue, table, rows.identity(server, queue), consistency, lake.uri, refused_at, seen)
    return CatalogueState(*known, noted=noted, recorded=number, files=files, missing=missing)


def missing_files(lake: Lake, files: Sequence[DataFile], *, is_all: bool = False) -> Iterator[DataFile]:
    """Yield the files that the lake lacks: of all of them, or of those in the folders of the newest snapshot's."""
    newest = max((file.snapshot for file in files), default=0)
    folders = {file.name.rpartition("/")[0] for file in files if is_all or file.snapshot == newest}
    names = {folder: lake.beside(folder) for folder in folders}
    for file in files:
        folder, _, name = file.name.rpartition("/")
        if folder in names and name not in names[folder]:
            yield file
