"""The folder of a lake: one run at a time, what was killed is ended or removed, and files are put in place."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path

from spanmq.errors import PipelineError
from spanmq.spark.jobs import delta, iceberg
from spanmq.spark.jobs.manifest import (
    FOLDER,
    Exported,
    Manifest,
    drop_pending,
    last_manifest,
    read_exported,
    read_pending,
    write_manifest,
)


@contextlib.contextmanager
def alone(lake: Path, *, dry_run: bool) -> Iterator[None]:
    """Keep other exports out of the folder; a lock of the kernel, which no death survives."""
    if dry_run:
        yield
        return
    if lake.exists() and not (lake / FOLDER).exists() and any(lake.iterdir()):
        raise PipelineError(
            f"the folder {lake} is in use: it has files that no export made", hint="Name an empty one."
        )
    (lake / FOLDER).mkdir(parents=True, exist_ok=True)
    with (lake / FOLDER / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PipelineError(f"another export is writing into {lake}") from error
        yield


def begun(lake: Path, queue: str, table: str, dsn: str = "") -> Exported:
    """Return what a lake has of a queue, after ending or undoing what was killed there."""
    pending = read_pending(lake, queue, table)
    if pending is not None:
        # It counts if Delta or Iceberg has it, else it never was.
        if pending.format == "delta":
            number = delta.committed(lake / table, application(pending))
        else:
            number = iceberg.committed(dsn, lake / table, application(pending))
        if number < pending.number:
            drop_pending(lake, pending)
        elif read_exported(lake, queue, table).number < pending.number:
            write_manifest(lake, pending)
        else:
            drop_pending(lake, pending)
    exported = read_exported(lake, queue, table)
    _sweep(lake, exported)
    return exported


def application(manifest: Manifest) -> str:
    """Return the name under which Delta and Iceberg count the exports of a queue."""
    return f"spanmq/{manifest.source}/{manifest.queue}/{manifest.table}"


def staging_of(lake: Path, queue: str, table: str) -> Path:
    """Return the folder in which what one export or compaction writes is at first."""
    return lake / FOLDER / table / "staging" / queue


def put_in_place(lake: Path, table: str, staging: Path) -> list[str]:
    """Move files out of a staging folder to where readers find them, and return their names."""
    files = []
    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        target = Path(table) / path.relative_to(staging).parent / f"{staging.name}-{number:05}.parquet"
        (lake / target).parent.mkdir(parents=True, exist_ok=True)
        path.rename(lake / target)
        files.append(str(target))
    return files


def _sweep(lake: Path, exported: Exported) -> None:
    """Remove the files of a killed run: its staging folder still exists, and contains its folders of days."""
    last = last_manifest(lake, exported)
    named = set(last.files) if last else set()
    for staging in staging_of(lake, exported.queue, exported.table).glob("*"):
        for folder in [path for path in staging.rglob("*") if path.is_dir()]:
            there = lake / exported.table / folder.relative_to(staging)
            for path in there.glob(f"{staging.name}-*.parquet"):
                if str(path.relative_to(lake)) not in named:
                    path.unlink()
        for name in last.removed if last else ():
            (lake / name).unlink(missing_ok=True)
        shutil.rmtree(staging)
    for path in (lake / FOLDER / exported.table).glob("*.draft"):
        path.unlink()
