"""What a lake holds of a queue: the ids that were exported and the files that have them.

A file counts when a manifest names it. Manifests are numbered, written whole and never changed; what no
manifest names is left over from an export that was killed, and the next one removes it.
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


def read_manifests(lake: Path, queue: str) -> list[Manifest]:
    """Give the manifests of a queue, oldest first."""
    found = []
    for path in sorted((lake / FOLDER).glob("*.json")):
        given: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if given.pop("version") != VERSION:
            raise PipelineError(f"{path} is of another version of spanmq")
        given["ids"] = [(first, last) for first, last in given["ids"]]
        manifest = Manifest(**given)
        if manifest.queue == queue:
            found.append(manifest)
    return found


def write_manifest(lake: Path, manifest: Manifest) -> None:
    """Write a manifest, whole or not at all. Raises PipelineError if another export was quicker."""
    folder = lake / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{manifest.queue}-{manifest.number:08}.json"
    draft = path.with_suffix(f".{os.getpid()}.draft")
    fields = {name: getattr(manifest, name) for name in Manifest.__slots__}
    with draft.open("w", encoding="utf-8") as file:
        json.dump({"version": VERSION, **fields}, file)
        file.flush()
        os.fsync(file.fileno())
    try:
        # A link fails where the name is taken; a rename would not.
        os.link(draft, path)
    except FileExistsError as error:
        raise PipelineError(
            f"another export of queue {manifest.queue} into {lake} came first", queue=manifest.queue
        ) from error
    finally:
        draft.unlink()


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
