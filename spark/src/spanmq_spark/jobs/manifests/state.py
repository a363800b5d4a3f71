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
                the manifest's number and tag
    counted     the manifest: its rows are exported deletes what it replaces, drops the draft, and records it
    recorded    no draft; and the database has      -
                ids, number and position

Of plain Parquet the manifest is the commit. Retention deletes what is recorded, and nothing else. The ids of a lake are
those that the database has recorded, and those of later manifests; a repair reads all manifests instead.

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
notices it (`next_commit` in store.py), and `restored` makes the table anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spanmq.errors import PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs.lake import Lake
from spanmq_spark.jobs.lake_lock import Consistency, LakeState, Seen
from spanmq_spark.jobs.manifests.store import Manifest, ids_of, read_manifest, read_manifests, read_seen
from spanmq_spark.jobs.ranges import Ranges, size_of

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
class ManifestState(LakeState):
    """What is known of a queue's table in a lake, whose last manifest is `newest`.

    The database has recorded export `noted`, and `later` manifests came after that.
    """

    newest: Manifest | None
    later: tuple[Manifest, ...]
    noted: int

    @property
    def number(self) -> int:
        """The number of the newest manifest, 0 without any."""
        return 0 if self.newest is None else self.newest.number

    @property
    def is_of_source(self) -> bool:
        """Whether the lake is of this database."""
        return self.newest is None or self.newest.source == self.source

    @property
    def is_empty(self) -> bool:
        """Whether neither has an export."""
        return not self.number and not self.noted

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
        if self.database_lacks:
            message = f"{self.lake.uri} has messages of queue {self.queue} that this database has lost"
            return PositionUnknownError(message, hint=_HINT, queue=self.queue)
        message = (
            f"{self.lake.uri} lacks exports of queue {self.queue} that this database has noted: it has {self.number}"
            f" of {self.noted}, or others"
        )
        return PositionUnknownError(message, hint=_HINT_OF_LAKE, queue=self.queue)

    def count(self) -> int:
        """Return the number of rows that were exported."""
        later = sum(size_of(manifest.ids) - size_of(manifest.lost) for manifest in self.later)
        return LakeState.count(self) + later

    def ids_in(self, blocks: Iterable[int] | None) -> Ranges:
        """Return the ids that the lake has, of all or some blocks of ids; perhaps others of later manifests, too."""
        return ids_of(self.later, LakeState.ids_in(self, blocks))

    def next(self, source: str, format: str, token: str = "") -> Manifest:  # noqa: A002 - Spark's word
        """Return the next manifest, which adds nothing yet."""
        newest = self.newest
        manifest = Manifest(
            *(self.number + 1, self.queue, source, [], [], 0, 0, self.table, format), token=token, follows=0
        )
        if newest is None:
            return manifest
        manifest = replace(manifest, position=newest.position)
        if newest.source != source:
            # Commits have another application's name, and rows that the lake lacks may be older.
            return manifest
        seen = self.seen
        return replace(manifest, follows=newest.rows_commit, since=seen.since, compared_at=seen.compared_at)

    def followed_by(self, manifest: Manifest) -> ManifestState:
        """Return what is so after one more manifest."""
        seen = Seen(manifest.since, manifest.compared_at)
        return replace(self, newest=manifest, later=(*self.later, manifest), seen=seen)


def read_state(dsn: str, lake: Lake, queue: str, table: str) -> ManifestState:
    """Return how what a lake has stands to its database."""
    with rows.connected(dsn) as server:
        source = rows.identity(server, queue)
        note = server.admin.run(calls.noted_export(queue, lake.uri, table, ""))
        manifests = _manifests_since(lake, queue, table, (note and note[1]) or 0)
        newest = manifests[-1] if manifests else None
        token = "" if newest is None else newest.position
        knows = not token or bool(server.admin.run(calls.known_positions(queue, [token])))
        if note is None or note[1] is None:
            # That of which this may be a copy.
            note = server.admin.run(calls.noted_export(queue, lake.uri, table, token)) or note
    noted_as, number, noted_token, refused_at = note or (lake.uri, None, None, None)
    noted = number or 0
    at_noted = next((manifest for manifest in manifests if manifest.number == noted), None)
    lake_lacks = noted > 0 and (
        at_noted is None or (noted_token is not None and at_noted.position != noted_token)
    )
    # A lake that is older than all tokens is behind by itself.
    database_lacks = not knows and noted - (newest.number if newest is not None else 0) < TOKENS
    if database_lacks:
        consistency = Consistency.BOTH_BACK if lake_lacks else Consistency.DATABASE_BACK
    else:
        consistency = Consistency.LAKE_BACK if lake_lacks else Consistency.CONSISTENT
    later = tuple(manifest for manifest in manifests if manifest.number > noted)
    seen = read_seen(lake, queue, table, newest)
    known = (dsn, lake, queue, table, source, consistency, noted_as if noted else "", refused_at, seen)
    return ManifestState(*known, newest=newest, later=later, noted=noted)


def _manifests_since(lake: Lake, queue: str, table: str, number: int) -> list[Manifest]:
    """Return the manifests from this number on, without reading older ones; all if the lake lacks that."""
    manifests: list[Manifest] = []
    while number and (manifest := read_manifest(lake, queue, table, number)) is not None:
        manifests.append(manifest)
        number += 1
    return manifests or read_manifests(lake, queue, table)


def record(state: ManifestState) -> None:
    """Record in the database the ids that manifests have changed since the last time, and the newest export."""
    blocks: set[int] | None = None
    if state.noted_as == state.lake.uri:
        blocks = set().union(*(manifest.blocks for manifest in state.later))
    if blocks is None or state.later:
        note(state, state.ids_in(blocks), blocks)


def note(state: ManifestState, ids: Ranges, blocks: set[int] | None = None) -> None:
    """Record that a lake has these ids, of all or of some blocks, and its newest export: then it is not refused."""
    newest = state.number, state.newest.position or None if state.newest is not None else None
    chosen = None if blocks is None else sorted(blocks)
    with rows.connected(state.dsn) as server:
        server.admin.run(calls.note_export(state.queue, state.lake.uri, state.table, ids, chosen, newest))
