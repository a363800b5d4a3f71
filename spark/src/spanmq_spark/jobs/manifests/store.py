"""The files that exports write beside a table, in `_spanmq`: manifests, drafts, and what was compared last.

A file of the table counts when a manifest names it. Manifests are numbered, written whole and never changed: of two
runs that write the same number one fails. Each has what one export added, so that they do not grow with the lake. The
states of a run, and what each file is for, are in state.py.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark.jobs.lake import DRAFT, Lake
from spanmq_spark.jobs.lake_lock import FOLDER, Seen, came_first
from spanmq_spark.jobs.lake_table import escaped
from spanmq_spark.jobs.ranges import Ranges, by_block, union, without

VERSION: Final = 1
TAG_BITS: Final = 28
# The tag in a table whose rows are of no export; 0.1.0 wrote 0 in each commit that only took a number.
NO_TAG: Final = (1 << TAG_BITS) - 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export: `ids` are those that it added, as ranges with both ends included.

    Its `files` replace those that it `removed`: in a repair, and in a compaction of 0.1.0, which added no ids. After a
    move of the database, `source` is the new one, and the other fields are empty. `token` identifies the run.
    `position` is the token under which the database noted what the lake then has, empty before the first export.
    `since` and `compared_at` are those of `Seen`, empty where all ids are to be compared.

    After a restore of the database, `lost` are the ids that no longer count.

    `follows` is the commit of the table that it goes on from, 0 for none; None: not known. With `remade` its commit
    makes the table anew, out of the files that manifests name.
    """

    number: int
    queue: str
    source: str
    ids: Ranges
    files: list[str]
    count: int
    checksum: int
    table: str = "archive"
    format: str = "parquet"
    removed: list[str] = field(default_factory=list)
    token: str = ""
    position: str = ""
    lost: Ranges = field(default_factory=list)
    follows: int | None = None
    remade: bool = False
    since: str = ""
    compared_at: float = 0.0

    @property
    def has_rows(self) -> bool:
        """Whether its commit changes the rows of the table."""
        return bool(self.count or self.lost or self.remade)

    @property
    def commit(self) -> int:
        """What its commit, which changes rows, notes in the table: the number, and a part of the token, the tag."""
        return self.number << TAG_BITS | int(self.token[: TAG_BITS // 4] or "0", 16)

    @property
    def rows_commit(self) -> int | None:
        """The newest commit that changed rows, as of this manifest; None: not known."""
        return self.commit if self.has_rows else self.follows

    @property
    def application(self) -> str:
        """The name under which Delta and Iceberg count the exports of a queue."""
        return f"spanmq/{self.source}/{self.queue}/{self.table}"

    @property
    def blocks(self) -> set[int]:
        """The blocks of the ids that it adds or takes away."""
        return {*by_block(self.ids), *by_block(self.lost)}


def tag_of(commit: int) -> int:
    """Return whose rows are the newest of the table that has this commit, 0 for none."""
    tag = commit & NO_TAG
    return 0 if tag == NO_TAG else tag


def number_of(commit: int) -> int:
    """Return the highest number that is used in the table that has this commit."""
    return commit >> TAG_BITS


def next_commit(lake: Lake, manifest: Manifest, committed: int) -> int:
    """Return what the commit of a manifest notes in a table whose newest is `committed`.

    A commit that only takes a number keeps the tag. Raises PipelineError where another run has taken the number, and
    PositionUnknownError where the table lacks what the manifest follows.
    """
    if number_of(committed) >= manifest.number:
        raise came_first(lake, manifest.queue)
    if not manifest.has_rows:
        return manifest.number << TAG_BITS | (committed & NO_TAG if committed else NO_TAG)
    if manifest.follows is not None and tag_of(committed) != tag_of(manifest.follows):
        raise PositionUnknownError(
            f"the {manifest.format} table {manifest.table} of {lake.uri} lacks export {number_of(manifest.follows)} of"
            f" queue {manifest.queue}, or has another one",
            hint="The table, or its catalogue, was set back to an earlier time: spanmq pipeline restored.",
            queue=manifest.queue,
        )
    return manifest.commit


def check_removed(lake: Lake, manifest: Manifest, removed: Collection[str], names: Collection[str]) -> None:
    """Raise PipelineError unless a table still has the files that a repair is to take out of it, among these names."""
    if not {*removed} <= {*names}:
        raise PipelineError(
            f"another program has rewritten files of queue {manifest.queue} in {lake.uri} meanwhile",
            hint="The repair has no effect. Run it again.",
            queue=manifest.queue,
        )


def ids_of(manifests: Iterable[Manifest], before: Ranges) -> Ranges:
    """Return the ids that a lake has after these manifests, of which it had some before."""
    ids, added = before, Ranges()
    for manifest in manifests:
        if manifest.lost:
            ids, added = without(union(ids, added), manifest.lost), []
        added += manifest.ids
    return union(ids, added)


def read_manifests(lake: Lake, queue: str, table: str = "archive") -> list[Manifest]:
    """Return all manifests of a queue, oldest first."""
    return _read_all(lake, f"{FOLDER}/{table}/manifest/{escaped(queue)}")


def read_manifest(lake: Lake, queue: str, table: str, number: int) -> Manifest | None:
    """Return a manifest by its number, None without one."""
    return _read(lake, _name(queue, table, number))


def files_of(lake: Lake, queue: str, table: str = "archive") -> list[str]:
    """Return the files of a queue that count."""
    files: dict[str, None] = {}
    for manifest in read_manifests(lake, queue, table):
        for name in manifest.removed:
            files.pop(name, None)
        files |= dict.fromkeys(manifest.files)
    return list(files)


def write_manifest(lake: Lake, manifest: Manifest) -> None:
    """Write a manifest, whole or not at all. Raises PipelineError if another run was quicker."""
    try:
        lake.create(_name(manifest.queue, manifest.table, manifest.number), _written(manifest))
    except FileExistsError as error:
        raise came_first(lake, manifest.queue) from error


def write_draft(lake: Lake, manifest: Manifest) -> None:
    """Note a run that is to write this manifest, or what it is about to commit."""
    lake.put(_draft(manifest), _written(manifest))


def read_drafts(lake: Lake, queue: str, table: str) -> list[Manifest]:
    """Return the drafts of runs on a queue that have not ended."""
    return _read_all(lake, f"{FOLDER}/{table}/draft/{escaped(queue)}")


def drop_draft(lake: Lake, manifest: Manifest) -> None:
    """Forget a run."""
    lake.delete(_draft(manifest))


def write_seen(lake: Lake, queue: str, table: str, number: int, seen: Seen) -> None:
    """Note what an export without new rows has compared: it counts until there is a manifest after this number."""
    lake.put(_seen(queue, table), json.dumps({"number": number, **asdict(seen)}).encode())


def read_seen(lake: Lake, queue: str, table: str, newest: Manifest | None) -> Seen:
    """Return what was compared with a lake last."""
    data = lake.read(_seen(queue, table))
    fields: dict[str, Any] = {} if data is None else json.loads(data)
    if newest is not None and fields.get("number") != newest.number:
        return Seen(newest.since, newest.compared_at)
    return Seen(fields.get("since", ""), fields.get("compared_at", 0.0))


def sweep_halves(lake: Lake, queue: str, table: str, *, has_drafts: bool) -> None:
    """Delete files of a queue that a killed run had begun to write; without a draft, only one beside the folders."""
    folder = f"{FOLDER}/{table}"
    # Those of all queues are in one folder; each name goes on with a dot after the queue's.
    names = [f"{folder}/{name}" for name in lake.beside(folder) if name.startswith(f"{escaped(queue)}.")]
    for kind in ("draft", "manifest") if has_drafts else ():
        names += lake.sizes(f"{folder}/{kind}/{escaped(queue)}")
    for name in names:
        if name.endswith(DRAFT):
            lake.delete(name)


def _name(queue: str, table: str, number: int) -> str:
    return f"{FOLDER}/{table}/manifest/{escaped(queue)}/{number:08}.json"


def _draft(manifest: Manifest) -> str:
    return f"{FOLDER}/{manifest.table}/draft/{escaped(manifest.queue)}/{manifest.token}.json"


def _seen(queue: str, table: str) -> str:
    return f"{FOLDER}/{table}/{escaped(queue)}.exported"


def _written(manifest: Manifest) -> bytes:
    return json.dumps({"version": VERSION, **asdict(manifest)}).encode()


def _read_all(lake: Lake, folder: str) -> list[Manifest]:
    manifests = (_read(lake, name) for name in lake.sizes(folder) if name.endswith(".json"))
    return [manifest for manifest in manifests if manifest is not None]


def _read(lake: Lake, name: str) -> Manifest | None:
    data = lake.read(name)
    if data is None:
        return None
    fields: dict[str, Any] = json.loads(data)
    if fields.pop("version") != VERSION:
        raise PipelineError(f"{name} in {lake.uri} is of another version of spanmq")
    # 0.1.0 wrote it.
    fields.pop("kept", None)
    for key in ("ids", "lost"):
        fields[key] = [(first, last) for first, last in fields[key]]
    return Manifest(**fields)
