"""Streams that write into a queue whose database, or whose checkpoint, went back in time: refused, and repaired."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.tests.protocol import SEAMS, Source, Stream, sink_to
from spark.tests.restored import copied

from spanmq.client import Client
from spanmq.errors import PipelineError, PositionUnknownError
from spanmq_spark.jobs.repairs import restored

pytestmark = pytest.mark.usefixtures("relay")


def archived(dsn: str, *bodies: int) -> None:
    with Client(dsn) as client:
        client.archive("orders", client.send_batch("orders", bodies))


def sent(dsn: str) -> Counter[Any]:
    with Client(dsn) as client:
        return Counter(message.body for message in client.receive("copies", 1000))


@pytest.fixture
def relay(dsns: dict[str, str], tmp_path: Path) -> Iterator[Stream]:
    """A stream over the archive of one database into a queue of another."""
    for dsn, queue in ((dsns["here"], "orders"), (dsns["there"], "copies")):
        with Client(dsn) as client:
            client.queues.create(queue)
    sink = sink_to(Source({"dsn": dsns["there"], "queue": "copies"}).source)
    options = {"dsn": dsns["here"], "queue": "orders", "table": "archive", "columns": "body"}
    stream = Stream(options, tmp_path / "relay", sink)
    yield stream
    stream.stop()


@pytest.mark.parametrize(("lost", "kill"), [(1, "logged"), (1, "committed"), (3, ""), (3, "written")])
def test_target_that_went_back_refuses_the_next_epoch_and_has_the_lost_ones_again(
    relay: Stream, dsns: dict[str, str], spanmq_server: str, lost: int, kill: str
) -> None:
    here, there = dsns["here"], dsns["there"]
    for body in range(3):
        archived(here, body)
        relay.run()
    went_back = copied(there, spanmq_server)
    for body in range(3, 3 + lost):
        archived(here, body)
        relay.run(kill=kill if body == 2 + lost else "")
    went_back()
    archived(here, 98)
    if lost > 1 or kill not in SEAMS[1:3]:
        with pytest.raises(
            PositionUnknownError, match="queue copies has epoch 3 as the newest of the stream"
        ):
            relay.run()
        for is_dry_run in (True, False):
            report = restored(there, "copies", checkpoint=relay.checkpoint, dry_run=is_dry_run)
            # The first epoch only begins the checkpoint. Of the last one a killed driver has not noted the end.
            assert report.epochs == list(range(4, 4 + lost))[: lost - (kill in SEAMS[1:3])]
    assert restored(there, "copies", checkpoint=relay.checkpoint).epochs == []
    relay.run()
    archived(here, 99)
    relay.run()
    assert sent(there) == Counter([*range(3 + lost), 98, 99])


def test_epoch_without_rows_is_recorded(relay: Stream, dsns: dict[str, str]) -> None:
    here, there = dsns["here"], dsns["there"]
    archived(here, 1)
    relay.run()
    with Client(here) as client:
        # A position that is newer, without a row.
        client.queues.create("others")
    relay.sink("query", 0, [])
    relay.sink("query", 1, [])
    relay.sink("query", 1, [])
    with pytest.raises(
        PositionUnknownError, match="has epoch 1 as the newest of the stream, not the epoch before 3"
    ):
        relay.sink("query", 3, [])
    with pytest.raises(PositionUnknownError, match="has no epoch of the stream, not the epoch before 1"):
        relay.sink("another", 1, [])
    assert sent(there) == Counter([1])


def test_target_that_went_back_before_the_first_epoch_needs_a_new_checkpoint(
    relay: Stream, dsns: dict[str, str], spanmq_server: str
) -> None:
    went_back = copied(dsns["there"], spanmq_server)
    for body in range(2):
        archived(dsns["here"], body)
        relay.run()
    went_back()
    archived(dsns["here"], 2)
    with pytest.raises(PositionUnknownError, match="has no epoch of the stream"):
        relay.run()
    with pytest.raises(PipelineError, match=r"nor has that an epoch of it\nhint: .* new checkpoint"):
        restored(dsns["there"], "copies", checkpoint=relay.checkpoint)
    relay.stop()
    shutil.rmtree(relay.checkpoint)
    relay.run()
    assert sent(dsns["there"]) == Counter(range(3))


@pytest.mark.parametrize("lost", [1, 2])
def test_checkpoint_that_went_back_writes_nothing_twice(
    relay: Stream, dsns: dict[str, str], tmp_path: Path, lost: int
) -> None:
    for body in range(5):
        if body == 5 - lost:
            shutil.copytree(relay.checkpoint, tmp_path / "backup")
        archived(dsns["here"], body)
        relay.run()
    shutil.rmtree(relay.checkpoint)
    (tmp_path / "backup").rename(relay.checkpoint)
    archived(dsns["here"], 98)
    with pytest.raises(PositionUnknownError, match=r"The checkpoint was set back"):
        relay.run()
    if lost > 1:
        with pytest.raises(PipelineError, match="ends before epoch 5, which queue copies has"):
            restored(dsns["there"], "copies", checkpoint=relay.checkpoint)
    assert sent(dsns["there"]) == Counter(range(5))


def test_checkpoint_that_has_forgotten_the_lost_epochs_is_refused(
    relay: Stream, dsns: dict[str, str], spanmq_server: str
) -> None:
    archived(dsns["here"], 0)
    relay.run()
    went_back = copied(dsns["there"], spanmq_server)
    for body in (1, 2, 3):
        archived(dsns["here"], body)
        relay.run()
    for log in ("offsets", "commits"):
        for number in (0, 1):
            relay.logged(log)[number].unlink()
    went_back()
    with pytest.raises(PipelineError, match="has forgotten epoch 2, which queue copies lacks"):
        restored(dsns["there"], "copies", checkpoint=relay.checkpoint)
