"""What a lake has of a queue is known without reading again what older manifests say."""

from pathlib import Path

from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_lock import FOLDER
from spanmq_spark.jobs.manifests.store import (
    Manifest,
    files_of,
    read_drafts,
    read_exported,
    write_draft,
    write_exported,
    write_manifest,
)


def exported(lake: Lake, number: int, queue: str = "orders") -> None:
    """Note an export of every third id."""
    ids = [(id_, id_) for id_ in range(3 * number, 3 * number + 30, 3)]
    write_manifest(lake, Manifest(number, queue, "here", ids, [f"{number:05}.parquet"], len(ids), 0))


def test_manifests_do_not_grow_with_the_lake_and_older_ones_are_not_read_again(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    for number in range(1, 60):
        exported(lake, number)
        write_exported(read_exported(lake, "orders"))
    sizes = [
        path.stat().st_size
        for path in sorted((tmp_path / FOLDER / "archive" / "manifest" / "orders").glob("*.json"))
    ]
    assert max(sizes) < 1.2 * min(sizes)
    files = files_of(lake, "orders")
    assert files == [f"{number:05}.parquet" for number in range(1, 60)]
    # The summary is behind by one, as where an export was killed.
    exported(lake, 60)
    found = read_exported(lake, "orders")
    assert (found.number, found.ids) == (60, [(id_, id_) for id_ in range(3, 210, 3)])
    (tmp_path / FOLDER / "archive" / "orders.exported").unlink()
    again = read_exported(lake, "orders")
    assert (again.number, again.count, again.ids) == (found.number, found.count, found.ids)
    write_exported(found)
    for path in (tmp_path / FOLDER / "archive" / "manifest" / "orders").glob("*.json"):
        path.unlink()
    again = read_exported(lake, "orders")
    assert (again, again.ids) == (found, found.ids)


def test_queue_whose_name_has_a_slash_is_apart_from_others(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    for number, queue in enumerate(("a", "a/b", "a%2Fb"), 1):
        for earlier in range(1, number + 1):
            exported(lake, earlier, queue)
        write_exported(read_exported(lake, queue))
        write_draft(lake, Manifest(number, queue, "here", [], [], 0, 0, token=f"{number}"))
    for number, queue in enumerate(("a", "a/b", "a%2Fb"), 1):
        assert len(files_of(lake, queue)) == read_exported(lake, queue).number == number
        assert [each.token for each in read_drafts(lake, queue, "archive")] == [f"{number}"]


def test_export_writes_the_ids_of_its_own_blocks_only(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    gaps = [(id_, id_) for id_ in range(1, 100_000, 2)]
    write_manifest(lake, Manifest(1, "orders", "here", gaps, ["1.parquet"], len(gaps), 0))
    write_exported(read_exported(lake, "orders"))
    folder = tmp_path / FOLDER / "archive" / "ids" / "orders"
    before = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert len(before) == 4
    # One at the end, and one of long ago.
    write_manifest(
        lake, Manifest(2, "orders", "here", [(100, 100), (100_001, 100_100)], ["2.parquet"], 101, 0)
    )
    # Killed after the first of both files.
    found = read_exported(lake, "orders")
    lake.put(f"{FOLDER}/archive/ids/orders/{0:015}.json", b"[[1,1],[99,101]]")
    assert found.ids_in([0])[:2] == [(1, 1), (99, 101)]
    assert (found.count, found.ids_in([3])[-1]) == (50_101, (100_001, 100_100))
    write_exported(found)
    after = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}
    assert sorted(name for name, written in after.items() if before.get(name) != written) == [
        f"{block:015}.json" for block in (0, 3)
    ]
    # A restored database: ids that no longer count.
    lost = Manifest(3, "orders", "here", [], [], 0, 0, lost=[(100, 100), (100_051, 100_100)])
    write_manifest(lake, lost)
    found = write_exported(read_exported(lake, "orders"))
    assert (found.count, found.ids[-1]) == (50_050, (100_001, 100_050))
