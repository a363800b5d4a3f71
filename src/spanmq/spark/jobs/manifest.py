"""What a lake holds of a queue: the ids that were exported and the files that have them.

A file counts when a manifest names it. Manifests are numbered, written whole and never changed; each has what
one export added, so that they do not grow with the lake. What all of them say of ids is kept in one file,
which can be made from them. What no manifest names is left over from an export that was killed, and the next
one removes it. A manifest may be written as pending first, where something else has to happen before it counts.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from spanmq.errors import PipelineError

FOLDER: Final = "_spanmq"
VERSION: Final = 1
_PENDING: Final = ".pending"

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export: `ids` are those that it added, as ranges with both ends included.

    A compaction adds no ids: its `files` replace those that it `removed`. After a move of the database,
    `source` is the new one, and the other fields are empty.
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


@dataclass(frozen=True, slots=True)
class Exported:
    """What manifests up to `number` say together: `ids` are all that the lake has of the queue."""

    queue: str
    table: str
    number: int = 0
    source: str = ""
    ids: Ranges = field(default_factory=list)

    def followed_by(self, manifest: Manifest) -> Exported:
        """Return what is so after one more manifest."""
        ids = union(self.ids, manifest.ids)
        return replace(self, number=manifest.number, source=manifest.source, ids=ids)


def read_exported(lake: Path, queue: str, table: str = "archive") -> Exported:
    """Return what a lake has of a queue, without reading older manifests again."""
    exported = Exported(queue, table)
    with contextlib.suppress(FileNotFoundError):
        given = json.loads(_summary(lake, exported).read_text("utf-8"))
        exported = Exported(**{**given, "ids": [(first, last) for first, last in given["ids"]]})
    # Those that came after: one, where an export was killed.
    while (path := _path(lake, queue, table, exported.number + 1)).exists():
        exported = exported.followed_by(_read(path))
    return exported


def write_exported(lake: Path, exported: Exported) -> None:
    """Keep what a lake has, for read_exported."""
    path = _summary(lake, exported)
    _draft(path, {name: getattr(exported, name) for name in Exported.__slots__}).replace(path)


def formats(lake: Path, table: str) -> set[str]:
    """Return the formats of a table: the first manifest of each queue says it."""
    return {_read(path).format for path in (lake / FOLDER / table).glob("*-00000001.json")}


def read_manifests(lake: Path, queue: str | None, table: str = "archive") -> list[Manifest]:
    """Return all manifests of a queue, or of all queues, oldest first."""
    found = [_read(path) for path in sorted((lake / FOLDER / table).glob("*.json"))]
    return [each for each in found if queue in (each.queue, None)]


def last_manifest(lake: Path, exported: Exported) -> Manifest | None:
    """Return the newest manifest, or None without any."""
    return _read(_path(lake, exported.queue, exported.table, exported.number)) if exported.number else None


def files_of(lake: Path, queue: str | None, table: str = "archive") -> list[str]:
    """Return the files that count, of a queue or of all."""
    files: dict[str, None] = {}
    for each in read_manifests(lake, queue, table):
        for name in each.removed:
            files.pop(name, None)
        files |= dict.fromkeys(each.files)
    return list(files)


def write_manifest(lake: Path, manifest: Manifest, *, is_pending: bool = False) -> None:
    """Write a manifest, whole or not at all. Raises PipelineError if another export was quicker."""
    path = _path(lake, manifest.queue, manifest.table, manifest.number)
    draft = _draft(
        path, {"version": VERSION, **{name: getattr(manifest, name) for name in Manifest.__slots__}}
    )
    if is_pending:
        draft.replace(path.with_suffix(_PENDING))
        return
    try:
        # A link fails where the name is taken; a rename would not.
        os.link(draft, path)
    except FileExistsError as error:
        raise PipelineError(
            f"another export of queue {manifest.queue} into {lake} came first", queue=manifest.queue
        ) from error
    finally:
        draft.unlink()
    path.with_suffix(_PENDING).unlink(missing_ok=True)


def read_pending(lake: Path, queue: str, table: str) -> Manifest | None:
    """Return the pending manifest of a queue, if any: the one after the last, or the last itself."""
    found = [_read(path) for path in sorted((lake / FOLDER / table).glob(f"*{_PENDING}"))]
    mine = [each for each in found if each.queue == queue]
    return mine[-1] if mine else None


def drop_pending(lake: Path, manifest: Manifest) -> None:
    """Forget a pending manifest."""
    path = _path(lake, manifest.queue, manifest.table, manifest.number)
    path.with_suffix(_PENDING).unlink(missing_ok=True)


def _path(lake: Path, queue: str, table: str, number: int) -> Path:
    return lake / FOLDER / table / f"{queue}-{number:08}.json"


def _summary(lake: Path, exported: Exported) -> Path:
    return lake / FOLDER / exported.table / f"{exported.queue}.exported"


def _draft(path: Path, fields: dict[str, Any]) -> Path:
    """Write a file beside `path`, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(fields, file)
        file.flush()
        os.fsync(file.fileno())
    return draft


def _read(path: Path) -> Manifest:
    given: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if given.pop("version") != VERSION:
        raise PipelineError(f"{path} is of another version of spanmq")
    given["ids"] = [(first, last) for first, last in given["ids"]]
    return Manifest(**given)


def union(ids: Ranges, more: Ranges) -> Ranges:
    """Join ranges: sorted, apart from each other."""
    joined: Ranges = []
    for first, last in sorted([*ids, *more]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def within(ids: Ranges, first: int, last: int) -> Ranges:
    """Return the parts of sorted ranges that lie between two ids."""
    return [(max(a, first), min(b, last)) for a, b in ids if b >= first and a <= last]
