"""A run on the files of a queue in a lake: one at a time, and what was killed is ended or undone first (state.py).

A row of the database keeps others out as long as the connection lasts. That a run which has lost it does no
harm is by the numbers of manifests.
"""

import contextlib
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from spanmq_spark import calls, rows
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_format import BY_MANIFEST, known_manifest_table
from spanmq_spark.jobs.lake_lock import Seen, alone, check, note_format
from spanmq_spark.jobs.lake_table import LOST, folder_of
from spanmq_spark.jobs.manifests.state import ManifestState, read_state, record
from spanmq_spark.jobs.manifests.store import (
    Manifest,
    drop_draft,
    number_of,
    read_drafts,
    read_manifest,
    sweep_halves,
    tag_of,
    write_draft,
    write_manifest,
    write_seen,
)
from spanmq_spark.jobs.parquet import LakeFile


@dataclass(frozen=True, slots=True)
class ManifestRun:
    """A run on a queue's files of a lake, which had the `state` before."""

    state: ManifestState

    def begin(self, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
        """Note that files will be written, and return the manifest that they are for."""
        note_format(self.state.lake, self.state.table, format)
        manifest = self.state.next(source, format, uuid.uuid4().hex[:12])
        write_draft(self.state.lake, manifest)
        return manifest

    def commit(
        self, manifest: Manifest, files: Sequence[LakeFile], witnesses: Sequence[str], seen: Seen
    ) -> None:
        """Commit files, write the manifest, and record what the lake has: in this order."""
        # It counts before the lake has it: a database that went back since then does not know it.
        with rows.connected(self.state.dsn) as server:
            call = calls.note_position(manifest.queue, manifest.position, witnesses)
            position = server.admin.run(call)
        manifest = replace(manifest, position=position, since=seen.since, compared_at=seen.compared_at)
        # From now on retention may delete that, and nothing else.
        record(self.count(manifest, files))

    def count(
        self, manifest: Manifest, files: Sequence[LakeFile] = (), removed: Collection[str] = ()
    ) -> ManifestState:
        """Commit what a manifest changes in the table, write it, and end; return the state after it."""
        lake = self.state.lake
        if manifest.has_rows:
            write_draft(lake, manifest)
            in_lake = BY_MANIFEST[manifest.format](self.state.dsn, lake, manifest.table)
            in_lake.commit(manifest, files, removed)
        write_manifest(lake, manifest)
        end(lake, manifest)
        return self.state.followed_by(manifest)

    def drop(self, manifest: Manifest) -> None:
        """Forget the draft."""
        drop_draft(self.state.lake, manifest)

    def note(self, seen: Seen) -> None:
        """Record what the lake has, and note what was compared with it, where no row is new."""
        state = self.state
        record(state)
        write_seen(state.lake, state.queue, state.table, state.number, seen)


@contextlib.contextmanager
def run_on(dsn: str, lake: Lake, queue: str, table: str, *, is_repair: bool = False) -> Iterator[ManifestRun]:
    """Be the only run on a queue's files for a block. Raises PipelineError where another is under way.

    Raises PositionUnknownError if the database or the lake lacks what the other has, unless the run is to repair that.
    """
    with alone(dsn, lake, queue, table) as server:
        before = read_state(dsn, lake, queue, table)
        if is_repair:
            known_manifest_table(dsn, lake, table).reach()
        else:
            check(server, before)
        state = _settled(before)
        if state is not before:
            # What was killed may have had an export that this database has lost.
            state = read_state(dsn, lake, queue, table)
            if not is_repair:
                check(server, state)
        yield ManifestRun(state)


def look(dsn: str, lake: Lake, queue: str, table: str) -> ManifestState:
    """Return what a lake has; raises what run_on() raises, and changes nothing."""
    state = read_state(dsn, lake, queue, table)
    with rows.connected(dsn) as server:
        check(server, state, is_dry_run=True)
    return state


def take_numbers(state: ManifestState, last: int, source: str, format: str) -> ManifestState:  # noqa: A002 - Spark's word
    """Use the numbers up to `last` for manifests that add nothing: the commit of another run with one of them fails."""
    in_lake = BY_MANIFEST[format](state.dsn, state.lake, state.table)
    while state.number < last:
        manifest = state.next(source, format)
        if number_of(in_lake.committed(manifest)) < manifest.number:
            in_lake.commit(manifest, [])
        write_manifest(state.lake, manifest)
        state = state.followed_by(manifest)
    return state


def _settled(state: ManifestState) -> ManifestState:
    """Return what a lake has of a queue, after ending or undoing what was killed there."""
    dsn, lake, queue, table = state.dsn, state.lake, state.queue, state.table
    drafts = read_drafts(lake, queue, table)
    sweep_halves(lake, queue, table, has_drafts=bool(drafts))

    def is_committed(draft: Manifest) -> bool:
        committed = BY_MANIFEST[draft.format](dsn, lake, table).committed(draft)
        return draft.has_rows and tag_of(committed) == tag_of(draft.commit)

    # First one that Delta or Iceberg has: its manifest was not written yet.
    for draft in sorted(drafts, key=is_committed, reverse=True):
        counts = draft.number > state.number and is_committed(draft)
        state = take_numbers(state, draft.number - counts, draft.source, draft.format)
        if counts:
            write_manifest(lake, draft)
            state = state.followed_by(draft)
        end(lake, draft)
    return state


def end(lake: Lake, draft: Manifest) -> None:
    """End a run: delete its files, unless they count, then those that they replace, and its draft."""
    manifest = read_manifest(lake, draft.queue, draft.table, draft.number)
    folder = folder_of(draft.table, draft.queue)
    names = list(lake.sizes(folder))
    counting, removed = set[str](), list[str]()
    if manifest is not None and manifest.token == draft.token:
        counting, removed = set(manifest.files), manifest.removed
    else:
        names += lake.sizes(f"{LOST}/{folder}")
    for name in names:
        if name.rpartition("/")[2].startswith(draft.token) and name not in counting:
            lake.delete(name)
    for name in removed:
        lake.delete(name)
    drop_draft(lake, draft)
