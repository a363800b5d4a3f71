"""What a lake holds of a queue: the ids that were exported and the files that have them.

A file counts when a manifest names it. Manifests are numbered, written whole and never changed; what no
manifest names is left over from an export that was killed, and the next one removes it. A manifest may be
written as pending first, where something else has to happen before it counts.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spanmq.errors import PipelineError

FOLDER: Final = "_spanmq"
VERSION: Final = 1
_PENDING: Final = ".pending"

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Manifest:
    """One export: `ids` are all that the lake has of the queue after it, as ranges, both ends included."""

    number: int
    queue: str
    source: str
    ids: Ranges
    files: list[str]
    count: int
    checksum: int
    table: str = "archive"
    format: str = "parquet"


def read_manifests(lake: Path, queue: str | None, table: str = "archive") -> list[Manifest]:
    """Give the manifests of a queue, or of all, oldest first."""
    found = [_read(path) for path in sorted((lake / FOLDER / table).glob("*.json"))]
    return [each for each in found if queue in (each.queue, None)]


def write_manifest(lake: Path, manifest: Manifest, *, is_pending: bool = False) -> None:
    """Write a manifest, whole or not at all. Raises PipelineError if another export was quicker."""
    path = _path(lake, manifest)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    fields = {name: getattr(manifest, name) for name in Manifest.__slots__}
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **fields}, file)
        file.flush()
        os.fsync(file.fileno())
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
    """Give the pending manifest of a queue, if there is one: after the last, or the last itself."""
    found = [_read(path) for path in sorted((lake / FOLDER / table).glob(f"*{_PENDING}"))]
    mine = [each for each in found if each.queue == queue]
    return mine[-1] if mine else None


def drop_pending(lake: Path, manifest: Manifest) -> None:
    """Forget a pending manifest."""
    _path(lake, manifest).with_suffix(_PENDING).unlink(missing_ok=True)


def _path(lake: Path, manifest: Manifest) -> Path:
    return lake / FOLDER / manifest.table / f"{manifest.queue}-{manifest.number:08}.json"


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
    """Give the parts of sorted ranges that lie between two ids."""
    return [(max(a, first), min(b, last)) for a, b in ids if b >= first and a <= last]
