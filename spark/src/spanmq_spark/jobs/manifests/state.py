"""What a lake with manifests, its table and its database know of each other, and what an export may do then.

An export goes through these states; a run that begins finds what another one left, and ends it (run.py):

    state       the lake has                        killed here, the next run
    begun       a draft: the token of the run, and  takes the number by a manifest that adds nothing, so that the other
                the number of its manifest          can't come back, and deletes its files
    written     files, whose names have the token   the same
    noted       nothing more: the database has      the same; the position is of no use
                noted a position, a random token
    drafted     the whole manifest, in the draft    the same, unless the table has the commit: then it counts it
    committed   the commit of the table, which has  writes the manifest out of the draft
                the manifest's number and token
    counted     the manifest: its rows are exported deletes what it replaces, writes the summary, drops the draft
    recorded    a summary, and no draft; and the    -
                database has ids, number, position

Of plain Parquet the manifest is the commit. Retention deletes what is recorded, and nothing else.

What is newest has one answer, the `consistency`, out of three facts, each of which may go back to an earlier time: the
lake's newest manifest with its position; the number and the position that the database has recorded last; and whether
the database knows the lake's position.

    the database   the lake has   consistency     what is to be done
    knows it       the recorded   CONSISTENT      export the next one
    does not       the recorded   DATABASE_BACK   refuse; `restored` keeps the rows that only the lake has
    knows it       an older one   LAKE_BACK       refuse; `restored` exports anew, and names what is gone
    does not       an older one   BOTH_BACK       refuse; both of it
    has another identity          not of source   another folder, or `moved` if it is CONSISTENT otherwise

A lake that is refused stays so, by a mark in the database, until one of these was called, or forget-export. The
table, or its catalogue, is the fourth that may go back: each commit names the one that it follows, so the next one
notices it (`Committed` in store.py), and `restored` makes the table anew.
"""

from dataclasses import dataclass
from typing import Any, Final

from spanmq.errors import PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs.lake_lock import Consistency
from spanmq_spark.jobs.manifests.store import (
    Exported,
    changed_by,
    read_manifest,
    write_exported,
)

_HINT: Final = (
    "If this database was restored to an earlier time: spanmq pipeline restored. If it was moved with all it has:"
    " spanmq pipeline moved. Or use another folder."
)
_HINT_OF_LAKE: Final = (
    "If the lake was set back to an earlier time, or is a copy: spanmq pipeline restored. To begin anew in this folder:"
    " spanmq pipeline forget-export."
)
# The database keeps the tokens of a hundred exports of a lake.
TOKENS: Final = 100


@dataclass(frozen=True, slots=True)
class ManifestState:
    """What is known of a queue's table.

    `source` is the database's identity. It has recorded export `noted` of the lake under the name `noted_as`, or of the
    one of which it is a copy. The lake has been refused since `refused_at`.
    """

    exported: Exported
    source: str
    consistency: Consistency
    noted: int
    noted_as: str
    refused_at: Any

    @property
    def is_of_source(self) -> bool:
        """Whether the lake is of this database."""
        return self.exported.source in (self.source, "")

    @property
    def is_empty(self) -> bool:
        """Whether neither has an export."""
        return not self.exported.number and not self.noted

    @property
    def database_lacks(self) -> bool:
        """Whether the database lacks what the lake has."""
        return self.consistency in (Consistency.DATABASE_BACK, Consistency.BOTH_BACK)

    @property
    def lake_lacks(self) -> bool:
        """Whether the lake lacks what the database has recorded."""
        return self.consistency in (Consistency.LAKE_BACK, Consistency.BOTH_BACK)

    @property
    def error(self) -> PositionUnknownError:
        """What is wrong, with a hint for exports."""
        exported, lake = self.exported, self.exported.lake.uri
        if self.database_lacks:
            message = f"{lake} has messages of queue {exported.queue} that this database has lost"
            return PositionUnknownError(message, hint=_HINT, queue=exported.queue)
        message = (
            f"{lake} lacks exports of queue {exported.queue} that this database has noted: it has"
            f" {exported.number} of {self.noted}, or others"
        )
        return PositionUnknownError(message, hint=_HINT_OF_LAKE, queue=exported.queue)


def state_of(dsn: str, exported: Exported) -> ManifestState:
    """Return how what a lake has stands to its database."""
    lake = exported.lake
    queue, table, token = exported.queue, exported.table, exported.position
    with rows.connected(dsn) as server:
        source = rows.identity(server, queue)
        knows = not token or bool(server.admin.run(calls.known_positions(queue, [token])))
        note = server.admin.run(calls.noted_export(queue, lake.uri, table, token))
    noted_as, number, noted_token, refused_at = note or (lake.uri, None, None, None)
    noted = number or 0
    manifest = read_manifest(lake, queue, table, noted) if noted <= exported.number else None
    # A lake that is older than all tokens is behind by itself.
    database_lacks = not knows and noted - exported.number < TOKENS
    lake_lacks = noted > exported.number or (
        manifest is not None and noted_token is not None and manifest.position != noted_token
    )
    if database_lacks:
        consistency = Consistency.BOTH_BACK if lake_lacks else Consistency.DATABASE_BACK
    else:
        consistency = Consistency.LAKE_BACK if lake_lacks else Consistency.CONSISTENT
    return ManifestState(exported, source, consistency, noted, noted_as, refused_at)


def record(dsn: str, exported: Exported, *, is_whole: bool) -> None:
    """Record in the database what the lake has, and its newest export: all, or what changed since the last time."""
    lake, queue, table = exported.lake, exported.queue, exported.table
    with rows.connected(dsn) as server:
        note = server.admin.run(calls.noted_export(queue, lake.uri, table, ""))
        blocks: list[int] | None = None
        if note is not None and note[1] and not is_whole:
            manifests = [
                read_manifest(lake, queue, table, n) for n in range(note[1] + 1, exported.number + 1)
            ]
            changed = (changed_by(manifest) for manifest in manifests if manifest is not None)
            blocks = sorted(set[int]().union(*changed))
        if blocks is None or blocks:
            ids = exported.ids if blocks is None else exported.ids_in(blocks)
            newest = exported.number, exported.position or None
            server.admin.run(calls.note_export(queue, lake.uri, table, ids, blocks, newest))
    write_exported(exported)
