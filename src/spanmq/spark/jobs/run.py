"""A run on the files of a queue in a lake: one at a time, and what was killed is ended or undone first.

An advisory lock of the database keeps others out, and ends with the connection. That a run which has lost it
does no harm is by the numbers of manifests.
"""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq.spark import calls, rows
from spanmq.spark.jobs.export_run import Seen
from spanmq.spark.jobs.history import check_history, note
from spanmq.spark.jobs.lake import Lake
from spanmq.spark.jobs.lake_format import known_manifest_table, manifest_table
from spanmq.spark.jobs.lake_table import LOST, folder_of
from spanmq.spark.jobs.manifest import (
    FOLDER,
    Committed,
    Exported,
    Manifest,
    drop_draft,
    note_format,
    read_drafts,
    read_exported,
    read_manifest,
    sweep_halves,
    write_draft,
    write_exported,
    write_manifest,
)
from spanmq.spark.jobs.parquet import Written

# For what a run that was killed a moment ago holds until the server sees its end.
WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run on a queue's files of a lake; `exported` is what was there before."""

    dsn: str
    lake: Lake
    exported: Exported

    def begin(self, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
        """Note that files will be written, and return the manifest that they are for."""
        queue, table = self.exported.queue, self.exported.table
        check_format_of(self.lake, table, format, note_format(self.lake, table, format))
        manifest = Manifest(
            number=self.exported.number + 1,
            queue=queue,
            source=source,
            ids=[],
            files=[],
            count=0,
            checksum=0,
            table=table,
            format=format,
            token=uuid.uuid4().hex[:12],
            position=self.exported.position,
            follows=self.exported.committed if self.exported.source in (source, "") else 0,
        )
        write_draft(self.lake, manifest)
        return manifest

    def commit(
        self,
        manifest: Manifest,
        files: Sequence[Written],
        witnesses: Sequence[str],
        seen: Seen,  # noqa: ARG002 - it is noted afterwards
    ) -> None:
        """Commit files, and write the manifest: in this order."""
        # It counts before the lake has it: a database that went back since then does not know it.
        with rows.connected(self.dsn) as server:
            call = calls.note_position(manifest.queue, manifest.position, witnesses)
            manifest = replace(manifest, position=server.admin.run(call))
        manifest_table(manifest.format, self.dsn, self.lake, manifest.table).commit(manifest, files)
        write_manifest(self.lake, manifest)
        self.end(manifest)

    def drop(self, manifest: Manifest) -> None:
        """Forget the draft."""
        drop_draft(self.lake, manifest)

    def note(self, seen: Seen) -> None:
        """Note in the database what the lake has: from now on retention may delete that, and nothing else."""
        after = read_exported(self.lake, self.exported.queue, self.exported.table)
        after = replace(after, since=seen.since, compared_at=seen.compared_at)
        note(self.dsn, after, is_whole=seen.is_whole)

    def end(self, manifest: Manifest) -> None:
        """Delete what a manifest that counts replaces, and files of attempts that do not; forget the draft."""
        _sweep(self.lake, manifest)
        write_exported(self.exported.followed_by(manifest))
        drop_draft(self.lake, manifest)


@contextlib.contextmanager
def run_on(dsn: str, lake: Lake, queue: str, table: str, *, is_repair: bool = False) -> Iterator[Run]:
    """Be the only run on a queue's files for a block. Raises PipelineError where another is under way.

    Raises PositionUnknownError if the database lacks what the lake has, unless the run is to repair that.
    """
    with alone(dsn, lake, queue, table):
        before = read_exported(lake, queue, table)
        if not is_repair:
            check_history(dsn, lake, before)
        else:
            known_manifest_table(dsn, lake, table).reach()
        exported = _settled(dsn, lake, queue, table)
        if not is_repair and exported != before:
            check_history(dsn, lake, exported)
        yield Run(dsn, lake, exported)


def look(dsn: str, lake: Lake, queue: str, table: str) -> Exported:
    """Return what a lake has; raises what run_on() raises, and changes nothing."""
    before = read_exported(lake, queue, table)
    check_history(dsn, lake, before, is_dry_run=True)
    return before


@contextlib.contextmanager
def alone(dsn: str, lake: Lake, queue: str, table: str) -> Iterator[Client]:
    """Hold the lock of a queue's table in a lake for a block; yield the session that has it.

    Raises PipelineError for a folder that no export made, and where another has the lock.
    """
    top = lake.top()
    if top and FOLDER not in top:
        raise PipelineError(
            f"the folder {lake.uri} is in use: it has files that no export made", hint="Name an empty one."
        )
    with rows.alone(dsn, f"spanmq lake {lake.uri} {table} {queue}", WAIT_SECONDS) as server:
        if server is None:
            raise PipelineError(f"another export of queue {queue} is writing into {lake.uri}")
        yield server


def check_format_of(lake: Lake, table: str, format: str, known: str | None) -> None:  # noqa: A002
    """Raise PipelineError for a format that is not the one of a table."""
    if known not in (format, None):
        raise PipelineError(
            f"the folder {lake.uri} is in use: its table {table} is of format {known}, not {format}",
            hint="Use another folder, or its format.",
        )


def _settled(dsn: str, lake: Lake, queue: str, table: str) -> Exported:
    """Return what a lake has of a queue, after ending or undoing what was killed there."""
    exported = read_exported(lake, queue, table)
    drafts = list(read_drafts(lake, queue, table))
    sweep_halves(lake, queue, table, has_drafts=bool(drafts))

    def committed_by(draft: Manifest) -> Committed:
        return manifest_table(draft.format, dsn, lake, table).committed(draft)

    def is_committed(draft: Manifest) -> bool:
        return draft.has_rows and committed_by(draft).rows == draft.commit

    # First one that Delta or Iceberg has: its manifest was not written yet.
    for draft in sorted(drafts, key=is_committed, reverse=True):
        if draft.number > exported.number:
            manifest = draft
            if not is_committed(draft):
                # It never was, and can't come back: its number is taken by nothing.
                nothing: dict[str, Any] = {
                    "count": 0,
                    "checksum": 0,
                    "token": "",
                    "position": exported.position,
                    "follows": None,
                    "remade": False,
                }
                for name in ("ids", "files", "removed", "lost", "kept"):
                    nothing[name] = []
                manifest = replace(draft, **nothing)
                if not committed_by(draft).has_taken(draft):
                    # The commit of another run with this number fails from now on.
                    manifest_table(draft.format, dsn, lake, table).commit(manifest, [])
            write_manifest(lake, manifest)
            exported = exported.followed_by(manifest)
        _sweep(lake, draft)
        exported = write_exported(exported)
        drop_draft(lake, draft)
    return exported


def _sweep(lake: Lake, draft: Manifest) -> None:
    """Delete the files of a run that has ended, unless they count; then those that they replace."""
    manifest = read_manifest(lake, draft.queue, draft.table, draft.number)
    counts = manifest is not None and manifest.token == draft.token
    files = {*manifest.files, *manifest.kept} if manifest is not None and counts else set()
    folder = folder_of(draft.table, draft.queue)
    for name in (*lake.sizes(folder), *lake.sizes(f"{LOST}/{folder}")):
        if name.rpartition("/")[2].startswith(draft.token) and name not in files:
            lake.delete(name)
    for name in manifest.removed if manifest is not None and counts else ():
        lake.delete(name)
