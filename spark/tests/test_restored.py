"""Streams over a database that went back in time are refused, also after new messages have taken the old ids."""

import json
from collections import Counter
from pathlib import Path

import pytest
from spark.tests.conftest import Streams
from spark.tests.protocol import Driver
from spark.tests.restored import copied

from spanmq.client import Client
from spanmq.errors import ConnectionLostError, NotFoundError, PositionUnknownError
from spanmq_spark.jobs.repairs import restored


def send(dsn: str, bodies: range, *, archives: bool) -> None:
    with Client(dsn) as client:
        ids = client.send_batch("orders", bodies)
        if archives:
            client.archive("orders", ids)


def step(driver: Driver) -> int | None:
    """Run a batch, also where the driver's connection was ended: its program starts it again."""
    try:
        return driver.step()
    except ConnectionLostError:
        return driver.step()


@pytest.mark.parametrize("table", ["queue", "archive"])
@pytest.mark.parametrize("kill", ["", "logged", "written"])
def test_stream_is_refused_by_a_database_that_lacks_its_last_batch(
    dsn: str, spanmq_server: str, stream: Streams, table: str, kill: str
) -> None:
    archives = table == "archive"
    lake = stream(table=table)
    send(dsn, range(10), archives=archives)
    assert lake.run() == [10]
    went_back = copied(dsn, spanmq_server)
    send(dsn, range(10, 30), archives=archives)
    lake.run(kill=kill)
    before = lake.bodies
    went_back()
    for new in (range(99, 100), range(100, 107), range(200, 240)):
        send(dsn, new, archives=archives)
        with pytest.raises(PositionUnknownError, match="does not know the position in queue orders"):
            lake.run(failOnDataLoss="false")
    assert lake.bodies == before


def test_stream_goes_on_with_a_database_that_has_all_that_it_read(
    dsn: str, spanmq_server: str, stream: Streams
) -> None:
    lakes = {table: stream(table, table=table) for table in ("queue", "archive")}
    for table, lake in lakes.items():
        send(dsn, range(10), archives=table == "archive")
        assert lake.run() == [10]
    went_back = copied(dsn, spanmq_server)
    send(dsn, range(50, 60), archives=False)
    went_back()
    for table, lake in lakes.items():
        send(dsn, range(10, 14), archives=table == "archive")
        assert lake.run() == [4]
        assert lake.bodies == Counter(range(14))


def test_running_stream_is_refused_when_its_database_goes_back(
    dsn: str, spanmq_server: str, stream: Streams
) -> None:
    drivers = [stream(table, table=table).start() for table in ("queue", "archive")]
    for table, driver in zip(("queue", "archive"), drivers, strict=True):
        send(dsn, range(10), archives=table == "archive")
        assert (driver.step(), driver.step()) == (0, 10)
    went_back = copied(dsn, spanmq_server)
    for archives, driver in zip((False, True), drivers, strict=True):
        send(dsn, range(10, 20), archives=archives)
        assert step(driver) == 10
    went_back()
    for driver in drivers:
        with pytest.raises(PositionUnknownError):
            step(driver)


@pytest.mark.parametrize("queue", ["orders", "orders,others"])
@pytest.mark.parametrize("kill", ["", "logged"])
@pytest.mark.parametrize("table", ["queue", "archive"])
def test_checkpoint_is_set_back_to_what_the_database_knows(
    client: Client, database: str, spanmq_server: str, stream: Streams, table: str, queue: str, kill: str
) -> None:
    client.queues.create("others")
    client.close()
    archives = table == "archive"
    lake = stream(table=table, queue=queue)
    send(database, range(10), archives=archives)
    assert lake.run() == [10]
    send(database, range(10, 20), archives=archives)
    # The last that the database knows, and the checkpoint has.
    assert lake.run() == [10]
    went_back = copied(database, spanmq_server)
    send(database, range(100, 110), archives=archives)
    lake.run(kill=kill)
    send(database, range(110, 113), archives=archives)
    lake.run()
    lost = Counter(range(100, 113))
    went_back()
    send(database, range(20, 50), archives=archives)
    with pytest.raises(PositionUnknownError):
        lake.run()
    seen = restored(database, "orders", checkpoint=lake.checkpoint, dry_run=True)
    assert seen.batches == 2
    with pytest.raises(PositionUnknownError):
        lake.run()
    assert restored(database, "orders", checkpoint=lake.checkpoint).batches == 2
    assert sum(lake.run()) == 30
    assert lake.bodies == Counter(range(50)) + lost
    assert restored(database, "orders", checkpoint=lake.checkpoint).batches == 0
    with Client(database) as client:
        assert client.queues.metrics("orders").length == 0


@pytest.mark.parametrize("is_known", [False, True])
def test_checkpoint_of_which_no_batch_is_known_gets_a_new_receiver(
    dsn: str, spanmq_server: str, stream: Streams, *, is_known: bool
) -> None:
    lake = stream(receiver="lake")
    if is_known:
        send(dsn, range(3), archives=False)
        lake.run()
    went_back = copied(dsn, spanmq_server)
    for first in range(10, 15):
        send(dsn, range(first, first + 1), archives=False)
        assert lake.run() == [1]
    # As Spark forgets old batches.
    for log in ("offsets", "commits"):
        for number, path in lake.logged(log).items():
            if number < 4:
                path.unlink()
    went_back()
    send(dsn, range(20, 25), archives=False)
    with pytest.raises((PositionUnknownError, NotFoundError)):
        lake.run()
    assert restored(dsn, "orders", checkpoint=lake.checkpoint).batches > 0
    assert sum(lake.run()) == 5
    assert set(lake.bodies) >= {*range(10, 15), *range(20, 25)}
    with Client(dsn) as client:
        assert client.queues.metrics("orders").length == 0


def test_checkpoint_whose_receiver_is_lost_is_refused(
    dsn: str, spanmq_server: str, stream: Streams, tmp_path: Path
) -> None:
    went_back = copied(dsn, spanmq_server)
    send(dsn, range(10), archives=False)
    lake = stream()
    assert lake.run() == [10]
    went_back()
    with pytest.raises(NotFoundError, match="has no receiver"):
        lake.run()


def test_each_of_two_streams_over_a_queue_in_one_checkpoint_gets_its_own_receiver(
    dsn: str, spanmq_server: str, stream: Streams
) -> None:
    went_back = copied(dsn, spanmq_server)
    first, second = stream("first"), stream("second")
    for lake in (first, second):
        send(dsn, range(3), archives=False)
        lake.run()
    # As Spark does for a query with two sources: a line for each in every file.
    for number, path in first.logged("offsets").items():
        other = second.logged("offsets")[number].read_text().splitlines()[2]
        path.write_text(f"{path.read_text()}\n{other}")
    went_back()
    assert restored(dsn, "orders", checkpoint=first.checkpoint).batches > 0
    lines = first.logged("offsets")[1].read_text().splitlines()[2:]
    receivers = {json.loads(line)["receiver"] for line in lines}
    assert len(receivers) == 2
    with Client(dsn) as client:
        assert {each.receiver_id for each in client.admin.receivers.list("orders")} == receivers
