"""Exports, streams and migrations whose database was restored to an earlier time: refused, explained, repaired."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.tests.process.lakes import archive, bodies, compacted, leftovers
from spark.tests.protocol import Stream
from spark.tests.restored import copied
from tests.process.servers import Past, Servers, serving

from spanmq.client import Client
from spanmq.errors import PositionUnknownError, SpanmqError
from spanmq_spark.jobs.export import export
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.migrate import SparkFormat, migrate
from spanmq_spark.jobs.parquet import read
from spanmq_spark.jobs.repairs import restored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ["parquet", "delta", "iceberg"]


def kept_bodies(lake: Path) -> list[Any]:
    """Return the bodies of the rows that only the lake has."""
    place = lake_at(lake)
    names = [name for name in place.sizes("lost") if name.endswith(".parquet")]
    found = [
        json.loads(body) for batch in read(place, names, ["body"]) for body in batch.column(0).to_pylist()
    ]
    return sorted(found)


def archived(dsn: str, part: range) -> None:
    """Send messages, and archive them."""
    with Client(dsn) as client:
        client.send_batch("orders", part)
        archive(client, len(part))


def maintained(dsn: str) -> int:
    """Delete from the archive what retention may; return how many messages are left."""
    with Client(dsn) as client:
        client.queues.set_policy("orders", archive_retention="1 microsecond")
        while client.admin.maintain():
            pass
        return len(client.inspect.archive("orders", 1000))


def lose_and_repair(
    spark: SparkSession, dsn: str, folder: Path, past: Callable[[], Past], *, compacts: bool = False
) -> None:
    """Export messages into lakes of each format, lose the last ones with their exports, and go on."""
    lakes = {kind: folder / kind for kind in FORMATS}

    def export_all() -> list[int]:
        return [export(spark, dsn, "orders", lake, format=kind).exported for kind, lake in lakes.items()]

    archived(dsn, range(1000, 1050))
    assert export_all() == [50, 50, 50]
    # Archived before the backup, and exported after it.
    archived(dsn, range(1050, 1060))
    went_back = past()
    archived(dsn, range(2000, 2040))
    assert export_all() == [50, 50, 50]
    archived(dsn, range(2040, 2050))
    assert export_all() == [10, 10, 10]
    assert not compacts or compacted(lakes["delta"])[0]
    went_back()
    for new in (range(3000, 3004), range(3004, 3070)):
        archived(dsn, new)
        for kind, lake in lakes.items():
            with pytest.raises(PositionUnknownError, match=r"has lost|been refused since"):
                export(spark, dsn, "orders", lake, format=kind)
    # What only refused lakes have is not deleted, whatever ids it has.
    assert maintained(dsn) == 130
    for kind, lake in lakes.items():
        if kind != "iceberg":
            assert bodies(lake, kind, dsn) == [*range(1000, 1060), *range(2000, 2050)]
        [seen] = restored(dsn, "orders", lake=lake, dry_run=True).tables
        assert (seen.only_in_lake, seen.only_in_database, seen.kept) == (50, 70, "")
        [table] = restored(dsn, "orders", lake=lake).tables
        assert table == replace(seen, kept=table.kept)
        assert bodies(lake, kind, dsn) == list(range(1000, 1050))
        assert kept_bodies(lake) == list(range(2000, 2050))
        assert restored(dsn, "orders", lake=lake).tables == []
    assert export_all() == [80, 80, 80]
    assert {name for name in leftovers(lakes["parquet"]) if not name.startswith("lost/")} == set()
    for kind, lake in lakes.items():
        assert bodies(lake, kind, dsn) == [*range(1000, 1060), *range(3000, 3070)]


@pytest.mark.parametrize("compacts", [False, True])
def test_lake_of_a_database_that_went_back_is_refused_and_repaired(
    spark: SparkSession, dsn: str, spanmq_server: str, tmp_path: Path, *, compacts: bool
) -> None:
    lose_and_repair(spark, dsn, tmp_path, lambda: copied(dsn, spanmq_server), compacts=compacts)
    assert maintained(dsn) == 0


@pytest.mark.parametrize("way", [Servers.copy_cold, Servers.back_up, Servers.replicate])
def test_server_that_went_back_is_noticed_by_exports_streams_and_migrations(
    spark: SparkSession, tmp_path: Path, way: Callable[[Servers], Past]
) -> None:
    def send(bodies: range) -> None:
        with Client(dsn) as client:
            for queue in ("orders", "moving"):
                client.send_batch(queue, bodies)

    def move() -> int:
        return migrate(spark, dsn, "moving", target, tmp_path / "checkpoint").sent

    with serving() as servers:
        dsn = servers.dsn
        with Client(dsn) as client:
            client.install()
            for queue in ("orders", "moving"):
                client.queues.create(queue)
        target = SparkFormat(name="parquet", settings={"path": str(tmp_path / "moved")})
        streams = {
            table: Stream({"dsn": dsn, "queue": "orders", "table": table}, tmp_path / table)
            for table in ("queue", "archive")
        }

        def past() -> Past:
            send(range(10))
            assert (streams["queue"].run(), move()) == ([10], 10)
            assert sum(streams["archive"].run()) == 60
            back = way(servers)
            send(range(10, 20))
            assert (streams["queue"].run(), move()) == ([10], 10)

            def went_back() -> None:
                streams["archive"].run()
                back()
                for new in (range(20, 23), range(23, 50)):
                    send(new)
                    for stream in streams.values():
                        with pytest.raises(PositionUnknownError):
                            stream.run()
                    with pytest.raises(SpanmqError, match="does not know the position"):
                        move()
                batches = {
                    table: restored(dsn, "orders", checkpoint=tmp_path / table).batches for table in streams
                }
                assert batches["queue"] == 1
                assert batches["archive"] > 0
                assert restored(dsn, "moving", checkpoint=tmp_path / "checkpoint").batches == 1
                assert (streams["queue"].run(), move()) == ([30], 30)
                assert set(streams["queue"].bodies) == set(range(50))

            return went_back

        lose_and_repair(spark, dsn, tmp_path / "lakes", past)
        streams["archive"].run()
        assert set(streams["archive"].bodies) == {*range(1000, 1060), *range(2000, 2050), *range(3000, 3070)}
        assert maintained(dsn) == 0
        for stream in streams.values():
            stream.stop()
        moved = [json.loads(row["body"]) for row in spark.read.parquet(str(tmp_path / "moved")).collect()]
        assert sorted(moved) == list(range(50))
