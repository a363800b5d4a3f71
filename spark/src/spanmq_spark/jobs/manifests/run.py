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
from spanmq_spark.jobs.manifests.state import record, state_of
from spanmq_spark.jobs.manifests.store import (
    Exported,
    Manifest,
    drop_draft,
    read_drafts,
    read_exported,
    read_manifest,
    sweep_halves,
    taking,
    write_draft,
    write_exported,
    write_manifest,
)
from spanmq_spark.jobs.parquet import LakeFile


@dataclass(frozen=True, slots=True)
class ManifestRun:
    """A run on a queue's files of a lake; `exported` is what was there before."""

    dsn: str
    lake: Lake
    exported: Exported

    def begin(self, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
        """Note that files will be written, and return the manifest that they are for."""
        before = self.exported
        note_format(self.lake, before.table, format)
        manifest = Manifest(
            *(before.number + 1, before.queue, source, [], [], 0, 0, before.table, format),
            token=uuid.uuid4().hex[:12],
            position=before.position,
            follows=before.committed if before.source in (source, "") else 0,
        )
        write_draft(self.lake, manifest)
        return manifest

    def commit(
        self, manifest: Manifest, files: Sequence[LakeFile], witnesses: Sequence[str], seen: Seen
    ) -> None:
        """Commit files, write the manifest, and note what the lake has: in this order."""
        # It counts before the lake has it: a database that went back since then does not know it.
        with rows.connected(self.dsn) as server:
            call = calls.note_position(manifest.queue, manifest.position, witnesses)
            manifest = replace(manifest, position=server.admin.run(call))
        self.count(manifest, files)
        self.note(seen)

    def count(
        self, manifest: Manifest, files: Sequence[LakeFile] = (), removed: Collection[str] = ()
    ) -> None:
        """Commit what a manifest changes in the table, write it, and end."""
        if manifest.has_rows:
            write_draft(self.lake, manifest)
            in_lake = BY_MANIFEST[manifest.format](self.dsn, self.lake, manifest.table)
            in_lake.commit(manifest, files, removed)
        write_manifest(self.lake, manifest)
        self.end(manifest)

    def end(self, manifest: Manifest) -> None:
        """End with a manifest that is written: delete what it replaces, and files of attempts that do not count."""
        _sweep(self.lake, manifest)
        write_exported(self.exported.followed_by(manifest))
        drop_draft(self.lake, manifest)

    def drop(self, manifest: Manifest) -> None:
        """Forget the draft."""
        drop_draft(self.lake, manifest)

    def note(self, seen: Seen) -> None:
        """Record in the database what the lake has: from now on retention may delete that, and nothing else.

        An export without new rows calls it, too.
        """
        after = read_exported(self.lake, self.exported.queue, self.exported.table)
        after = replace(after, since=seen.since, compared_at=seen.compared_at)
        record(self.dsn, after, is_whole=seen.is_whole)


@contextlib.contextmanager
def run_on(dsn: str, lake: Lake, queue: str, table: str, *, is_repair: bool = False) -> Iterator[ManifestRun]:
    """Be the only run on a queue's files for a block. Raises PipelineError where another is under way.

    Raises PositionUnknownError if the database or the lake lacks what the other has, unless the run is to repair that.
    """
    with alone(dsn, lake, queue, table) as server:
        before = read_exported(lake, queue, table)
        if is_repair:
            known_manifest_table(dsn, lake, table).reach()
        else:
            check(server, lake, queue, table, state_of(dsn, before))
        exported = _settled(dsn, before)
        if not is_repair and exported != before:
            check(server, lake, queue, table, state_of(dsn, exported))
        yield ManifestRun(dsn, lake, exported)


def look(dsn: str, lake: Lake, queue: str, table: str) -> Exported:
    """Return what a lake has; raises what run_on() raises, and changes nothing."""
    exported = read_exported(lake, queue, table)
    with rows.connected(dsn) as server:
        check(server, lake, queue, table, state_of(dsn, exported), is_dry_run=True)
    return exported


def _settled(dsn: str, exported: Exported) -> Exported:
    """Return what a lake has of a queue, after ending or undoing what was killed there."""
    lake, queue, table = exported.lake, exported.queue, exported.table
    drafts = list(read_drafts(lake, queue, table))
    sweep_halves(lake, queue, table, has_drafts=bool(drafts))

    def is_committed(draft: Manifest) -> bool:
        of_table = BY_MANIFEST[draft.format](dsn, lake, table)
        return draft.has_rows and of_table.committed(draft).rows == draft.commit

    # First one that Delta or Iceberg has: its manifest was not written yet.
    for draft in sorted(drafts, key=is_committed, reverse=True):
        if draft.number > exported.number:
            manifest = draft
            if not is_committed(draft):
                # It never was, and can't come back: its number is taken by nothing.
                manifest = taking(draft.number, exported, draft.source, draft.format)
                in_lake = BY_MANIFEST[draft.format](dsn, lake, table)
                if not in_lake.committed(draft).has_taken(draft):
                    # The commit of another run with this number fails from now on.
                    in_lake.commit(manifest, [])
            write_manifest(lake, manifest)
            exported = exported.followed_by(manifest)
        _sweep(lake, draft)
        exported = write_exported(exported)
        drop_draft(lake, draft)
    return exported


def _sweep(lake: Lake, draft: Manifest) -> None:
    """Delete the files of a run that has ended, unless they count; then those that they replace."""
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
