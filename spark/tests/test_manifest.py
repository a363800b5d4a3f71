"""What a lake has of a queue is known without reading again what older manifests say."""

from pathlib import Path

from spanmq.client import Client
from spanmq_spark import calls, rows
from spanmq_spark.jobs.lake import Lake, lake_at
from spanmq_spark.jobs.lake_lock import FOLDER, Seen
from spanmq_spark.jobs.manifests.state import ManifestState, read_state, record
from spanmq_spark.jobs.manifests.store import (
    Manifest,
    files_of,
    read_drafts,
    read_seen,
    write_draft,
    write_manifest,
    write_seen,
)
from spanmq_spark.jobs.ranges import Ranges


def state_of(dsn: str, lake: Lake, queue: str = "orders") -> ManifestState:
    return read_state(dsn, lake, queue, "archive")


def exported(dsn: str, lake: Lake, number: int, ids: Ranges, lost: Ranges | None = None) -> None:
    """Write the manifest of an export, which the database has noted."""
    with rows.connected(dsn) as server:
        position = server.admin.run(calls.note_position("orders"))
        source = rows.identity(server, "orders")
    names = [f"{number:05}.parquet"]
    write_manifest(
        lake, Manifest(number, "orders", source, ids, names, len(ids), 0, position=position, lost=lost or [])
    )


def third(number: int) -> Ranges:
    return [(id_, id_) for id_ in range(3 * number, 3 * number + 30, 3)]


def test_manifests_do_not_grow_with_the_lake_and_older_ones_are_not_read_again(
    client: Client, database: str, tmp_path: Path
) -> None:
    lake = lake_at(tmp_path)
    for number in range(1, 20):
        exported(database, lake, number, third(number))
        record(state_of(database, lake))
    folder = tmp_path / FOLDER / "archive" / "manifest" / "orders"
    sizes = [path.stat().st_size for path in sorted(folder.glob("*.json"))]
    assert max(sizes) < 1.2 * min(sizes)
    assert files_of(lake, "orders") == [f"{number:05}.parquet" for number in range(1, 20)]
    # The database is behind by one, as where an export was killed.
    exported(database, lake, 20, third(20))
    found = state_of(database, lake)
    assert (found.number, found.noted, found.count()) == (20, 19, 28 + 10)
    assert found.ids_in(None) == [(id_, id_) for id_ in range(3, 90, 3)]
    record(found)
    for path in sorted(folder.glob("*.json"))[:-1]:
        path.unlink()
    again = state_of(database, lake)
    assert (again.number, again.ids_in(None), again.later) == (20, found.ids_in(None), ())


def test_queue_whose_name_has_a_slash_is_apart_from_others(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    for number, queue in enumerate(("a", "a/b", "a%2Fb"), 1):
        for earlier in range(1, number + 1):
            write_manifest(lake, Manifest(earlier, queue, "here", [], [f"{earlier}.parquet"], 1, 0))
        write_seen(lake, queue, "archive", number, Seen(f"{number}", 1.0))
        write_draft(lake, Manifest(number, queue, "here", [], [], 0, 0, token=f"{number}"))
    for number, queue in enumerate(("a", "a/b", "a%2Fb"), 1):
        assert len(files_of(lake, queue)) == number
        newest = Manifest(number, queue, "here", [], [], 0, 0)
        assert read_seen(lake, queue, "archive", newest) == Seen(f"{number}", 1.0)
        assert [each.token for each in read_drafts(lake, queue, "archive")] == [f"{number}"]


def test_export_records_and_reads_the_ids_of_its_own_blocks_only(
    client: Client, database: str, tmp_path: Path
) -> None:
    lake = lake_at(tmp_path)
    gaps = [(id_, id_) for id_ in range(1, 100_000, 2)]
    exported(database, lake, 1, gaps)
    record(state_of(database, lake))
    # One at the end, and one of long ago.
    exported(database, lake, 2, [(100, 100), (100_001, 100_100)])
    found = state_of(database, lake)
    assert found.count() == 50_101
    assert found.ids_in([1]) == [
        *[(100, 100)],
        *[(id_, id_) for id_ in range(32_769, 65_536, 2)],
        *[(100_001, 100_100)],
    ]
    record(found)
    found = state_of(database, lake)
    assert (found.later, found.count(), found.ids_in([0])[49:51]) == ((), 50_101, [(99, 101), (103, 103)])
    # A restored database: ids that no longer count.
    exported(database, lake, 3, [], lost=[(100, 100), (100_051, 100_100)])
    record(state_of(database, lake))
    found = state_of(database, lake)
    assert (found.count(), found.ids_in(None)[-1]) == (50_050, (100_001, 100_050))


def test_what_was_compared_counts_until_there_is_another_manifest(tmp_path: Path) -> None:
    lake = lake_at(tmp_path)
    write_seen(lake, "orders", "archive", 0, Seen("yesterday", 1.0))
    assert read_seen(lake, "orders", "archive", None) == Seen("yesterday", 1.0)
    # That of a repair: older rows may be missing.
    repaired = Manifest(1, "orders", "here", [], [], 0, 0, lost=[(1, 1)])
    assert read_seen(lake, "orders", "archive", repaired) == Seen()
