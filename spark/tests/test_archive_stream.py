"""Streams over an archive, and over a subscription: every message once, and losses are named."""

import itertools
import json
import random
import threading
from collections import Counter

import psycopg
import pytest
from spark.tests.conftest import Streams, new_role
from spark.tests.protocol import SEAMS, Stream
from tests.cli.program import ask, do

from spanmq.client import Client
from spanmq.errors import (
    InvalidArgumentError,
    MessagesLostError,
    MissingPrivilegeError,
    NotFoundError,
    QueueNotFoundError,
)


@pytest.fixture
def archive_stream(stream: Streams) -> Streams:
    """Streams over the archive of orders, each with a checkpoint of its own."""
    names = map(str, itertools.count())

    def made(**options: str) -> Stream:
        return stream(next(names), table="archive", **options)

    return made


def leased(client: Client, bodies: range) -> list[int]:
    """Send messages and lease them: then transactions that archive some don't wait for each other."""
    ids = client.send_batch("orders", bodies)
    assert len(client.receive("orders", len(ids), lease=600)) == len(ids)
    return ids


def archived(client: Client, bodies: range) -> None:
    client.archive("orders", client.send_batch("orders", bodies))


def test_what_is_archived_arrives_once_in_bounded_pieces(client: Client, archive_stream: Streams) -> None:
    archived(client, range(70))
    lake = archive_stream(maxOffsetsPerTrigger=30, minPartitions=3)
    assert lake.run() == [30, 30, 10]
    assert lake.run() == []
    archived(client, range(70, 100))
    # Archived in another order than sent.
    ids = leased(client, range(100, 110))
    client.archive("orders", ids[5:])
    assert lake.news() == Counter([*range(70, 100), *range(105, 110)])
    client.archive("orders", ids[:5])
    assert lake.news() == Counter(range(100, 105))
    assert lake.bodies == Counter(range(110))
    # Ten bodies have one byte, and the last ten three.
    assert archive_stream().run(maxBytesPerTrigger="100b") == [55, 48, 7]
    assert {"queue", "message_id", "attempt", "archived_at", "body"} <= set(lake.lake[1][0])


@pytest.mark.parametrize("kill", SEAMS)
def test_killed_driver_replays_the_same_rows(client: Client, archive_stream: Streams, kill: str) -> None:
    archived(client, range(100))
    lake = archive_stream()
    lake.run()
    ids = leased(client, range(100, 200))
    client.archive("orders", ids[50:])
    lake.run(kill=kill)
    # What comes meanwhile is not of the batch under way, which is cut anew.
    client.archive("orders", ids[:50])
    sizes = {"claimed": [100], "committed": [50]}.get(kill, [50, 50])
    assert lake.run(minPartitions=4) == sizes
    assert lake.bodies == Counter(range(200))


def test_open_transaction_stalls_nothing_and_loses_nothing(
    client: Client, database: str, archive_stream: Streams
) -> None:
    ids = leased(client, range(30))
    with psycopg.connect(database) as late, psycopg.connect(database) as undone:
        late.execute("select pgmq.archive('orders', %s)", [ids[:10]])
        undone.execute("select pgmq.archive('orders', %s)", [ids[10:20]])
        client.archive("orders", ids[20:])
        lake = archive_stream()
        assert lake.news() == Counter(range(20, 30))
        undone.rollback()
        late.commit()
    assert lake.news() == Counter(range(10))
    assert lake.news() == Counter()


def test_transaction_that_begins_early_and_writes_late_is_read(
    client: Client, database: str, archive_stream: Streams
) -> None:
    # It archives under the time of its beginning, long before the position that does not see it.
    ids = leased(client, range(3))
    with psycopg.connect(database) as late:
        late.execute("select 1")
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("select pgmq.archive('orders', %s)", [ids[:1]])
        lake = archive_stream()
        assert lake.news() == Counter([0])
        late.execute("select pgmq.archive('orders', %s)", [ids[1:]])
    assert lake.news() == Counter([1, 2])


def test_what_a_savepoint_holds_is_read_when_its_transaction_is_committed(
    client: Client, database: str, archive_stream: Streams
) -> None:
    # Its rows name a transaction of their own, which no snapshot names, between two that were seen to end.
    ids = leased(client, range(30))
    with psycopg.connect(database) as late:
        late.execute("select pgmq.archive('orders', %s)", [ids[:1]])
        for first in (1, 6):
            with late.transaction():
                late.execute("select pgmq.archive('orders', %s)", [ids[first : first + 5]])
            client.archive("orders", ids[first + 10 : first + 15])
        lake = archive_stream()
        assert lake.news() == Counter(range(11, 21))
        client.archive("orders", ids[21:])
        assert lake.news() == Counter(range(21, 30))
        late.commit()
    assert lake.news() == Counter(range(11))
    assert lake.news() == Counter()


def test_slow_committers_lose_nothing(client: Client, database: str, archive_stream: Streams) -> None:
    per_writer = 60
    ids = leased(client, range(8 * per_writer))
    is_over = threading.Event()
    steps = threading.Semaphore(0)  # an end of a transaction for each that the reader lets go

    def write(number: int) -> None:
        chance = random.Random(number)
        mine = ids[number::8]
        with psycopg.connect(database) as connection:
            while mine:
                n = chance.randint(1, 15)
                connection.execute("select pgmq.archive('orders', %s)", [mine[:n]])
                if not is_over.is_set():
                    steps.acquire()
                if chance.random() < 0.3:
                    connection.rollback()
                else:
                    connection.commit()
                    mine = mine[n:]

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for writer in writers:
        writer.start()
    lake = archive_stream()
    found: Counter[int] = Counter()
    try:
        for _ in range(12):
            for _ in range(4):
                steps.release()
            found += lake.news(maxOffsetsPerTrigger=25)
    finally:
        is_over.set()
        steps.release(10_000)
        for writer in writers:
            writer.join()
    found += lake.news(maxOffsetsPerTrigger=25)
    assert found == Counter(range(8 * per_writer))


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({"startingOffsets": "latest"}, []),
        # An id is one more than its body here.
        ({"startingOffsets": "8"}, [7, 8, 9]),
        ({"startingOffsets": "11"}, []),
        # The ids from the first one on that was archived then.
        ({"startingTimestamp": "2026-01-02T00:00:00Z"}, [6, 7, 8, 9]),
        ({"startingTimestamp": "2026-01-03"}, []),
    ],
)
def test_stream_begins_where_its_options_say_and_then_reads_all(
    client: Client, database: str, archive_stream: Streams, options: dict[str, str], bodies: list[int]
) -> None:
    late = leased(client, range(2))
    archived(client, range(2, 10))
    with psycopg.connect(database, autocommit=True) as connection:
        moved = "update pgmq.a_orders set archived_at = timestamptz '2026-01-01Z' + interval '1 day' * (msg_id / 7)"
        connection.execute(moved.encode())
    lake = archive_stream(maxOffsetsPerTrigger="2", **options)
    lake.run(kill="logged")
    lake.run()
    assert lake.bodies == Counter(bodies)
    # What is archived later comes whatever its id is.
    client.archive("orders", late)
    assert lake.news() == Counter(range(2))


def test_progress_of_a_stream_tells_how_many_messages_are_behind(
    client: Client, archive_stream: Streams
) -> None:
    archived(client, range(10))
    driver = archive_stream(maxOffsetsPerTrigger="4").start()
    assert driver.reader.reportLatestOffset() is None
    assert (driver.step(), driver.step()) == (0, 4)
    archived(client, range(10, 12))
    report = driver.reader.reportLatestOffset()
    assert report == json.loads(json.dumps(report))
    assert (report["queue"], report["behind"]) == ("orders", 8)
    assert report["behind_seconds"] >= 0


def shorten(dsn: str, retention: str = "1 microsecond") -> None:
    """Let retention delete from the archive of orders what is older than this, and then nothing more."""
    policy = "select spanmq.set_policy('orders', jsonb_build_object('archive_retention', {}))"
    do(dsn, policy.format(f"'{retention}'"))
    while ask(dsn, f"select count(*) from pgmq.a_orders where archived_at < now() - interval '{retention}'"):
        do(dsn, "select * from spanmq.maintain()")
    do(dsn, policy.format("null"))


def test_retention_faster_than_the_stream_is_told(
    client: Client, database: str, archive_stream: Streams
) -> None:
    archived(client, range(5))
    strict, lenient = archive_stream(), archive_stream(failOnDataLoss="false")
    assert strict.news() == lenient.news() == Counter(range(5))
    archived(client, range(5, 10))
    shorten(database)
    archived(client, range(10, 15))
    with pytest.raises(MessagesLostError, match="retention has deleted"):
        strict.news()
    assert lenient.news() == Counter(range(10, 15))
    # That was told once: from there on it goes on.
    archived(client, range(15, 20))
    assert lenient.news() == Counter(range(15, 20))


def test_retention_of_what_a_stream_is_in_the_middle_of_is_told(
    client: Client, database: str, archive_stream: Streams
) -> None:
    archived(client, range(10))
    do(database, "update pgmq.a_orders set archived_at = archived_at - interval '1 hour'")
    archived(client, range(10, 20))
    strict, lenient = archive_stream(), archive_stream(failOnDataLoss="false")
    drivers = [each.start(maxOffsetsPerTrigger=5) for each in (strict, lenient)]
    assert [(each.step(), each.step()) for each in drivers] == [(0, 5), (0, 5)]
    assert strict.bodies == lenient.bodies == Counter(range(5))
    shorten(database, "30 minutes")
    assert ask(database, "select min(msg_id) from pgmq.a_orders") == 11
    with pytest.raises(MessagesLostError, match="of 15 archived messages to be read only 10 are left"):
        strict.run()
    assert lenient.news() == Counter(range(10, 20))


@pytest.mark.parametrize("writes", [False, True])
def test_transaction_that_is_open_for_longer_than_the_retention_looks_like_no_loss(
    client: Client, database: str, archive_stream: Streams, writes: bool
) -> None:
    client.queues.create("others")
    with psycopg.connect(database) as elsewhere:
        archived(client, range(1))
        shorten(database)
        elsewhere.execute("select pgmq.send('others', '1')" if writes else "select 1")
        archived(client, range(5))
        lake = archive_stream()
        assert lake.news() == Counter(range(5))
        shorten(database)
        archived(client, range(5, 10))
        assert lake.news() == Counter(range(5, 10))
        shorten(database)
        elsewhere.commit()
        archived(client, range(10, 15))
        assert lake.news() == Counter(range(10, 15))


@pytest.mark.parametrize("savepoint", [False, True])
def test_loss_of_what_came_late_and_went_at_once_is_told(
    client: Client, database: str, archive_stream: Streams, savepoint: bool
) -> None:
    ids = leased(client, range(10))
    with psycopg.connect(database) as late:
        late.execute("select pg_current_xact_id()")
        if savepoint:
            late.execute("savepoint s")
        late.execute("select pgmq.archive('orders', %s)", [ids[:5]])
        client.archive("orders", ids[5:6])
        # Known is what retention does from here on.
        shorten(database)
        client.archive("orders", ids[6:])
        lake = archive_stream()
        assert lake.news() == Counter(range(6, 10))
    shorten(database)
    assert ask(database, "select jsonb_array_length(late) from spanmq_core.archive_gone") == 2
    with pytest.raises(MessagesLostError, match="retention has deleted"):
        lake.news()


def test_batch_of_which_something_is_gone_is_told(
    client: Client, database: str, archive_stream: Streams
) -> None:
    archived(client, range(5))
    strict, lenient = archive_stream(), archive_stream(failOnDataLoss="false")
    for lake in (strict, lenient):
        lake.run(kill="logged")
    do(database, "delete from pgmq.a_orders where msg_id = 3")
    with pytest.raises(MessagesLostError, match="of 5 archived messages of a batch only 4 are left"):
        strict.run()
    assert lenient.news() == Counter([0, 1, 3, 4])


def test_what_it_can_not_go_on_with_is_refused(
    client: Client, database: str, archive_stream: Streams
) -> None:
    archived(client, range(5))
    lake = archive_stream()
    lake.run()
    client.queues.drop("orders")
    client.queues.create("orders")
    with pytest.raises(NotFoundError, match="not of this archive"):
        lake.run()
    with pytest.raises(InvalidArgumentError, match="Did you mean latest"):
        archive_stream(startingOffsets="lates").run()
    with pytest.raises(InvalidArgumentError, match="a stream has no end"):
        archive_stream(endingOffsets="5").run()
    with pytest.raises(QueueNotFoundError, match="order"):
        archive_stream(queue="order").run()
    with new_role(database) as role:
        # Without any right, and with another one.
        for grants in ([], [f"select spanmq.grant_queue('{role}', 'orders', 'send')"]):
            do(database, *grants)
            with pytest.raises(MissingPrivilegeError, match="permission denied for queue orders"):
                archive_stream(dsn=database.replace("postgres@", f"{role}@")).run()
