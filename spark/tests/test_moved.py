"""A lake and a checkpoint go on with a database that was moved, if it has what the old one had."""

import uuid
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from spark.tests.conftest import Streams

from spanmq.client import Client
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark import calls, rows
from spanmq_spark.jobs.export import export, follow
from spanmq_spark.jobs.lake import lake_at
from spanmq_spark.jobs.lake_lock import FOLDER
from spanmq_spark.jobs.manifests.state import read_state
from spanmq_spark.jobs.manifests.store import Manifest, write_manifest
from spanmq_spark.jobs.repairs import moved


def noted(database: str) -> str:
    with rows.connected(database) as server:
        return server.admin.run(calls.note_position("orders"))


def manifest(number: int, source: str, last: int, position: str) -> Manifest:
    return Manifest(number, "orders", source, [(1, last)], ["1.parquet"], last, 0, position=position)


def test_checkpoint_goes_on_with_the_system_to_which_its_receiver_was_moved(
    client: Client, stream: Streams, database: str
) -> None:
    client.send_batch("orders", range(10))
    lake = stream()
    lake.run(maxOffsetsPerTrigger=4)
    with rows.connected(database) as server:
        system = rows.identity(server, "orders").partition("/")[0]
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
        write_manifest(lake_at(tmp_path), manifest(number, "7/old", last, noted(database)))

    client.send_batch("orders", range(10))
    exported(1, 10)
    assert moved(database, "orders", lake=tmp_path).tables == ["archive"]
    state = read_state(database, lake_at(tmp_path), "orders", "archive")
    assert (state.is_of_source, state.number, state.ids_in(None)) == (True, 2, [(1, 10)])
    # Again there is nothing to do.
    assert moved(database, "orders", lake=tmp_path).tables == []
    write_manifest(lake_at(tmp_path), manifest(3, "7/old", 11, str(uuid.uuid4())))
    with pytest.raises(PositionUnknownError, match="of queue orders that this database has lost"):
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


def test_lake_of_a_queue_that_was_created_again_or_restored_is_refused(
    client: Client, database: str, tmp_path: Path
) -> None:
    # Nothing is left to export where the lake has all ids: then it needs no Spark.
    run = partial(export, cast(Any, None), database, "orders", tmp_path)
    client.archive("orders", client.send_batch("orders", range(3)))
    write_manifest(lake_at(tmp_path), manifest(1, "7/old", 3, noted(database)))
    with pytest.raises(PipelineError, match="another"):
        run()
    moved(database, "orders", lake=tmp_path)
    assert (run(dry_run=True).exported, run().exported_before) == (0, 3)
    # Rounds of one that follows are one run in the records.
    rounds = iter([False, False, True])
    done = follow(cast(Any, None), database, "orders", tmp_path, wait=lambda _: next(rounds))
    assert (done.exports, done.exported) == (0, 0)
    assert [each.done for each in client.admin.pipeline_runs.list()] == [0, 0, None]
    client.queues.drop("orders")
    client.queues.create("orders")
    client.archive("orders", client.send_batch("orders", range(3)))
    for is_dry in (True, False):
        with pytest.raises(PipelineError, match="holds another queue of the name orders"):
            run(dry_run=is_dry)
