"""Files of a lake in a folder: they and their names are on the disk before what follows."""

import os
from pathlib import Path

import pytest

from spanmq_spark.jobs.lake import lake_at


def test_names_of_files_and_folders_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A crash of the machine would show it; here it is seen which files and folders are synced, and when.
    synced: list[tuple[str, frozenset[str]]] = []
    sync = os.fsync

    def fsync(opened: int) -> None:
        sync(opened)
        place = Path(f"/proc/self/fd/{opened}").readlink()
        names = frozenset(each.name for each in place.iterdir()) if place.is_dir() else frozenset()
        synced.append((str(place.relative_to(tmp_path)), names))

    def folders() -> dict[str, frozenset[str]]:
        return {name: names for name, names in synced if (tmp_path / name).is_dir()}

    monkeypatch.setattr(os, "fsync", fsync)
    lake = lake_at(tmp_path / "lake")
    with lake.writer("archive/day=1/file") as file:
        file.write(b"1")
    assert synced[-1][0] == "lake/archive/day=1"
    assert {name: set(names) for name, names in folders().items()} == {
        ".": {"lake"},
        "lake": {"archive"},
        "lake/archive": {"day=1"},
        "lake/archive/day=1": {"file"},
    }
    assert ("lake/archive/day=1/file", frozenset()) in synced
    for act in (lake.create, lake.put):
        act(f"_spanmq/{act.__name__}", b"2")
        assert act.__name__ in folders()["lake/_spanmq"]
    with pytest.raises(FileExistsError):
        lake.create("_spanmq/put", b"3")
    lake.delete("_spanmq/put")
    assert synced[-1] == ("lake/_spanmq", frozenset(["create"]))
    lake.delete("none/put")
