"""What a lake holds of a queue: the ids that were exported and the files that have them.

A file counts when a manifest names it. Manifests are numbered, written whole and never changed: of two runs
that write the same number one fails. Each has what one export added, so that they do not grow with the lake;
what all of them say of ids is kept in files of blocks of ids, which can be made from them.

A run notes itself before its first file, with its token, which its files have in their names, and the number
that its manifest will have (draft). Where one was killed, the next takes that number, so that the other can't
come back, and only then deletes its files. With Delta and Iceberg the draft becomes the whole manifest before
the commit, which has the same number and a part of the token: it tells whose commit it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark.jobs.lake import DRAFT, Lake
from spanmq_spark.jobs.lake_lock import FOLDER, came_first
from spanmq_spark.jobs.lake_table import escaped
from spanmq_spark.jobs.ranges import Ranges, by_block, size_of, union, without

VERSION: Final = 1
TOKEN_BITS: Final = 28


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export: `ids` are those that it added, as ranges with both ends included.

    Its `files` replace those that it `removed`: in a repair, and in a compaction of 0.1.0, which added no ids. After a
    move of the database, `source` is the new one, and the other fields are empty. `token` identifies the run.
    `position` is the token under which the database noted what the lake then has, empty before the first export.

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

    @property
    def has_rows(self) -> bool:
        """Whether its commit changes the rows of the table."""
        return bool(self.count or self.lost or self.remade)

    @property
    def commit(self) -> int:
        """What Delta and Iceberg note of its commit: the number, and whose it is (0 in one that adds nothing)."""
        return self.number << TOKEN_BITS | int(self.token[: TOKEN_BITS // 4] or "0", 16)

    @property
    def application(self) -> str:
        """The name under which Delta and Iceberg count the exports of a queue."""
        return f"spanmq/{self.source}/{self.queue}/{self.table}"

    @property
    def application_of_rows(self) -> str:
        """The name under which they have the newest one that changed rows."""
        return f"{self.application}/rows"


@dataclass(frozen=True, slots=True)
class Exported:
    """What manifests up to `number` say together.

    `count` rows are in the lake, with the commit `committed` of its table (None: not known). Rows that were archived
    before `since` (a time, as text) are in the lake; all ids were compared with the database's at `compared_at`
    (seconds since 1970). `later` are manifests that the files of ids do not have yet.
    """

    lake: Lake = field(repr=False, compare=False)
    queue: str
    table: str
    number: int = 0
    source: str = ""
    position: str = ""
    count: int = 0
    committed: int | None = None
    since: str = ""
    compared_at: float = 0.0
    later: tuple[Manifest, ...] = field(default=(), compare=False)

    @property
    def ids(self) -> Ranges:
        """All ids that the lake has of the queue."""
        names = (name.rpartition("/")[2] for name in self.lake.sizes(_folder_of_ids(self)))
        stored = {int(name.partition(".")[0]) for name in names if name.endswith(".json")}
        return self.ids_in({*stored, *self.changed})

    @property
    def changed(self) -> set[int]:
        """The blocks of ids that `later` manifests change."""
        return {block for manifest in self.later for block in changed_by(manifest)}

    def ids_in(self, blocks: Iterable[int]) -> Ranges:
        """Return the ids that the lake has in some blocks of ids."""
        return union([], [ids for part in _blocks_now(self, set(blocks)).values() for ids in part])

    def followed_by(self, manifest: Manifest) -> Exported:
        """Return what is so after one more manifest."""
        # After a restore or a move, rows that the lake lacks may be older.
        is_same = manifest.source == self.source and not manifest.lost
        return replace(
            self,
            number=manifest.number,
            source=manifest.source,
            position=manifest.position or self.position,
            count=self.count + size_of(manifest.ids) - size_of(manifest.lost),
            committed=self._committed(manifest),
            since=self.since if is_same else "",
            later=(*self.later, manifest),
        )

    def _committed(self, manifest: Manifest) -> int | None:
        if manifest.has_rows:
            return manifest.commit
        # After a move, commits have another application's name.
        return 0 if manifest.source != self.source else self.committed


def taking(number: int, after: Exported, source: str, format: str) -> Manifest:  # noqa: A002 - Spark's word
    """Return the manifest that takes a number, and adds nothing to what there is."""
    return Manifest(number, after.queue, source, [], [], 0, 0, after.table, format, position=after.position)


# These are in the file of a summary; ids have files of their own.
_STORED: Final = ("number", "source", "position", "count", "committed", "since", "compared_at")


def read_exported(lake: Lake, queue: str, table: str = "archive") -> Exported:
    """Return what a lake has of a queue, without reading older manifests again."""
    exported = Exported(lake, queue, table, committed=0)
    data = lake.read(_summary(exported))
    if data is not None:
        fields = {name: value for name, value in json.loads(data).items() if name in _STORED}
        # Releases before 0.2.0 did not store the commit.
        exported = replace(exported, **{"committed": None, **fields})
    # Those that came after: one, where an export was killed.
    while (manifest := read_manifest(lake, queue, table, exported.number + 1)) is not None:
        exported = exported.followed_by(manifest)
    return exported


def write_exported(exported: Exported) -> Exported:
    """Keep what a lake has, for read_exported: first the ids, in the files of their blocks, then the rest."""
    for block, ids in _blocks_now(exported, exported.changed).items():
        exported.lake.put(_name_of_ids(exported, block), json.dumps(ids, separators=(",", ":")).encode())
    exported.lake.put(_summary(exported), _data({name: getattr(exported, name) for name in _STORED}))
    return replace(exported, later=())


def changed_by(manifest: Manifest) -> set[int]:
    """Return the blocks of the ids that a manifest adds or takes away."""
    return {*by_block(manifest.ids), *by_block(manifest.lost)}


def _blocks_now(exported: Exported, blocks: set[int]) -> dict[int, Ranges]:
    """Return the ids in some blocks: those in their files, and then what later manifests change, in their order."""
    parts: dict[int, Ranges] = {}
    for block in sorted(blocks):
        data = exported.lake.read(_name_of_ids(exported, block))
        parts[block] = [] if data is None else [(first, last) for first, last in json.loads(data)]
    for manifest in exported.later:
        for block, ids in by_block(manifest.lost).items():
            if block in blocks:
                parts[block] = without(parts[block], ids)
        for block, ids in by_block(manifest.ids).items():
            if block in blocks:
                parts[block] = union(parts[block], ids)
    return parts


def read_manifests(lake: Lake, queue: str, table: str = "archive") -> list[Manifest]:
    """Return all manifests of a queue, oldest first."""
    names = lake.sizes(f"{FOLDER}/{table}/manifest/{escaped(queue)}")
    manifests = [_manifest(lake, name) for name in names]
    return [manifest for manifest in manifests if manifest is not None]


def read_manifest(lake: Lake, queue: str, table: str, number: int) -> Manifest | None:
    """Return a manifest by its number, None without one."""
    return _manifest(lake, _name(queue, table, number)) if number else None


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


@dataclass(frozen=True, slots=True)
class Committed:
    """The newest commits of a queue that a table of Delta or Iceberg has: any one, and one that changed rows.

    The first keeps runs from using a number again. The second tells which exports' rows the table has, whichever
    numbers were only taken since.
    """

    newest: int = 0
    rows: int = 0

    @classmethod
    def noted(cls, manifest: Manifest, version: Callable[[str], Any]) -> Committed:
        """Return what a table has noted of a manifest's queue, by the `version` of an application, None without one."""
        newest = int(version(manifest.application) or 0)
        rows = version(manifest.application_of_rows)
        # Releases before 0.2.0 noted the newest alone.
        return cls(newest, newest if rows is None else int(rows))

    @property
    def number(self) -> int:
        """The highest number that is used."""
        return self.newest >> TOKEN_BITS

    def has_taken(self, manifest: Manifest) -> bool:
        """Return whether the number of a manifest is used."""
        return self.number >= manifest.number

    def of(self, manifests: Sequence[Manifest]) -> int:
        """Return the newest commit that changed rows, of these manifests that did.

        A release before 0.2.0 did not tell it from a number that was only taken.
        """
        number, token = self.rows >> TOKEN_BITS, self.rows & ((1 << TOKEN_BITS) - 1)
        if token:
            return self.rows
        return max((manifest.commit for manifest in manifests if manifest.number <= number), default=0)

    def check(self, lake: Lake, manifest: Manifest) -> None:
        """Raise PipelineError where another run has taken a manifest's number, or the table lacks what it follows."""
        if self.has_taken(manifest):
            raise came_first(lake, manifest.queue)
        if manifest.has_rows and manifest.follows is not None and self.rows != manifest.follows:
            raise PositionUnknownError(
                f"the {manifest.format} table {manifest.table} of {lake.uri} has export {self.rows >> TOKEN_BITS} of"
                f" queue {manifest.queue} as its newest, not {manifest.follows >> TOKEN_BITS}",
                hint="The table, or its catalogue, was set back to an earlier time: spanmq pipeline restored.",
                queue=manifest.queue,
            )

    def notes(self, manifest: Manifest) -> dict[str, int]:
        """Return what the commit of a manifest notes of itself: the versions of both applications."""
        rows = manifest.commit if manifest.has_rows else self.rows
        return {manifest.application: manifest.commit, manifest.application_of_rows: rows}


def write_draft(lake: Lake, manifest: Manifest) -> None:
    """Note a run that is to write this manifest, or what it is about to commit."""
    lake.put(_draft(manifest), _written(manifest))


def read_drafts(lake: Lake, queue: str, table: str) -> Iterator[Manifest]:
    """Return the drafts of runs on a queue that have not ended."""
    for name in lake.sizes(f"{FOLDER}/{table}/draft/{escaped(queue)}"):
        if (draft := _manifest(lake, name)) is not None:
            yield draft


def sweep_halves(lake: Lake, queue: str, table: str, *, has_drafts: bool) -> None:
    """Delete files of a queue that a killed run had begun to write; without a draft, only its summary can be one."""
    folder = f"{FOLDER}/{table}"
    # The summaries of all queues are in one folder; each name goes on with a dot after the queue's.
    beside = [name for name in lake.beside(folder) if name.startswith(f"{escaped(queue)}.")]
    names = [f"{folder}/{name}" for name in beside]
    for kind in ("draft", "manifest", "ids") if has_drafts else ():
        names += lake.sizes(f"{folder}/{kind}/{escaped(queue)}")
    for name in names:
        if name.endswith(DRAFT):
            lake.delete(name)


def drop_draft(lake: Lake, manifest: Manifest) -> None:
    """Forget a run."""
    lake.delete(_draft(manifest))


def _name(queue: str, table: str, number: int) -> str:
    return f"{FOLDER}/{table}/manifest/{escaped(queue)}/{number:08}.json"


def _draft(manifest: Manifest) -> str:
    return f"{FOLDER}/{manifest.table}/draft/{escaped(manifest.queue)}/{manifest.token}.json"


def _summary(exported: Exported) -> str:
    return f"{FOLDER}/{exported.table}/{escaped(exported.queue)}.exported"


def _folder_of_ids(exported: Exported) -> str:
    return f"{FOLDER}/{exported.table}/ids/{escaped(exported.queue)}"


def _name_of_ids(exported: Exported, block: int) -> str:
    return f"{_folder_of_ids(exported)}/{block:015}.json"


def _written(manifest: Manifest) -> bytes:
    return _data({"version": VERSION, **{name: getattr(manifest, name) for name in Manifest.__slots__}})


def _data(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()


def _manifest(lake: Lake, name: str) -> Manifest | None:
    data = lake.read(name) if name.endswith(".json") else None
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
