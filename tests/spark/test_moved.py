"""A lake and a checkpoint go on with a database that was moved, if it has what the old one had."""

from collections import Counter
from pathlib import Path

import pytest
from tests.spark.conftest import Streams

from spanmq.client import Client
from spanmq.errors import PipelineError
from spanmq.spark import rows
from spanmq.spark.jobs.lake import lake_at
from spanmq.spark.jobs.manifest import FOLDER, Manifest, read_exported, write_manifest
from spanmq.spark.jobs.moved import moved


def test_checkpoint_goes_on_with_the_system_to_which_its_receiver_was_moved(
    client: Client, stream: Streams, database: str
) -> None:
    client.send_batch("orders", range(10))
    lake = stream()
    lake.run(maxOffsetsPerTrigger=4)
    with rows.connected(database) as server:
        system = rows.identity(server).partition("/")[0]
    for path in lake.logged("offsets").values():
        path.write_text(path.read_text().replace(system, "7"))
    client.send_batch("orders", range(10, 12))
    with pytest.raises(PipelineError, match=r"another server: 7\nhint: .* spanmq pipeline moved"):
        lake.run()
    offsets = lake.logged("offsets").values()
    for path in offsets:
        path.with_name(f".{path.name}.crc").write_text("of what was there")
    assert moved(database, "orders", checkpoint=lake.checkpoint).offsets == len(offsets)
    assert list(lake.checkpoint.glob("offsets/.*")) == []
    assert lake.run() == [2]
    assert lake.bodies == Counter(range(12))
    assert moved(database, "orders", checkpoint=lake.checkpoint).offsets == 0


def test_lake_goes_on_with_a_database_that_has_given_its_ids(
    client: Client, database: str, tmp_path: Path
) -> None:
    def exported(number: int, last: int) -> None:
        write_manifest(
            lake_at(tmp_path), Manifest(number, "orders", "7/old", [(1, last)], ["1.parquet"], last, 0)
        )

    client.send_batch("orders", range(10))
    exported(1, 10)
    assert moved(database, "orders", lake=tmp_path).tables == ["archive"]
    with rows.connected(database) as server:
        assert read_exported(lake_at(tmp_path), "orders").source == rows.identity(server)
    assert read_exported(lake_at(tmp_path), "orders").ids == [(1, 10)]
    # Again there is nothing to do.
    assert moved(database, "orders", lake=tmp_path).tables == []
    exported(3, 11)
    with pytest.raises(PipelineError, match="has message 11 of queue orders, which has given ids up to 10"):
        moved(database, "orders", lake=tmp_path)


def test_what_is_not_of_this_queue_is_refused(
    client: Client, stream: Streams, database: str, tmp_path: Path
) -> None:
    client.queues.create("others")
    lake = stream()
    lake.run()
    with pytest.raises(PipelineError, match="not the checkpoint of a stream over queue others"):
        moved(database, "others", checkpoint=lake.checkpoint)
    (tmp_path / "lake" / FOLDER).mkdir(parents=True)
    with pytest.raises(PipelineError, match="holds nothing of queue others"):
        moved(database, "others", lake=tmp_path / "lake")
    client.queues.drop("orders")
    client.queues.create("orders")
    with pytest.raises(PipelineError, match="queue orders has no receiver"):
        moved(database, "orders", checkpoint=lake.checkpoint)
