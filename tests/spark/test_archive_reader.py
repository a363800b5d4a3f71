"""The reader of an archive's stream, driven as Spark does it: offsets as JSON, pieces read in tasks."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from spanmq.client import Client
from spanmq.errors import (
    InvalidArgumentError,
    MessagesLostError,
    MissingPrivilegeError,
    PipelineError,
    QueueNotFoundError,
)

if TYPE_CHECKING:
    from spanmq.spark.archive_stream import ArchiveStreamReader

pytest.importorskip("pyspark")
UNBOUNDED = 1_000_000
Drive = Callable[..., "Driver"]


class Driver:
    """What Spark does with a reader. `restart` is a new process on the same checkpoint."""

    def __init__(self, database: str, **options: str) -> None:
        self._given = {"dsn": database, "queue": "orders", "table": "archive"} | options
        self.offset: Any = {}
        self._reader = self._open()

    def close(self) -> None:
        self._reader.stop()

    def restart(self, *, bounded: bool = False) -> None:
        self.close()
        self._reader = self._open()
        if bounded:
            self._reader.prepareForTriggerAvailableNow()

    def _open(self) -> ArchiveStreamReader:
        from pyspark.sql.types import StructField, StructType

        from spanmq.spark.archive_stream import ArchiveStreamReader
        from spanmq.spark.column import chosen
        from spanmq.spark.options import read_options

        options = read_options(self._given)
        columns = StructType([StructField(each.name, each.kind) for each in chosen(options)])
        return ArchiveStreamReader(options, columns)

    def step(self, limit: int = UNBOUNDED) -> list[int]:
        """Give the bodies of the next batch."""
        from pyspark.sql.streaming.datasource import ReadMaxRows

        start = self.offset
        self.offset = json.loads(json.dumps(self._reader.latestOffset(start, ReadMaxRows(limit))))
        return self.read(start, self.offset)

    def read(self, start: Any, end: Any) -> list[int]:
        """Read a batch, as a task elsewhere does."""
        elsewhere = self._open()
        batches = [batch for part in self._reader.partitions(start, end) for batch in elsewhere.read(part)]
        return [json.loads(body) for batch in batches for body in batch.column("body").to_pylist()]

    def rest(self, limit: int = UNBOUNDED) -> Counter[int]:
        """Give all that is there now."""
        self.restart(bounded=True)
        found: Counter[int] = Counter()
        while bodies := self.step(limit) or (self.step(limit) if self.offset.get("rows") == 0 else []):
            assert len(bodies) <= limit
            found.update(bodies)
        return found


@pytest.fixture
def drive(database: str) -> Iterator[Drive]:
    opened: list[Driver] = []

    def start(**options: str) -> Driver:
        opened.append(Driver(database, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def leased(client: Client, bodies: range) -> list[int]:
    """Send messages and lease them: then transactions that archive some don't wait for each other."""
    ids = client.send_batch("orders", bodies)
    assert len(client.receive("orders", len(ids), lease=600)) == len(ids)
    return ids


def archived(client: Client, bodies: range) -> None:
    client.archive("orders", client.send_batch("orders", bodies))


def test_what_is_archived_arrives_once_in_bounded_pieces(client: Client, database: str, drive: Drive) -> None:
    archived(client, range(70))
    driver = drive(minPartitions="3")
    assert driver.step() == []  # the identity lies in the checkpoint before the first message
    assert [len(driver.step(30)) for _ in range(4)] == [30, 30, 10, 0]
    archived(client, range(70, 100))
    assert sorted(driver.step(100)) == list(range(70, 100))
    start = driver.offset
    # Archived in another order than sent, of transactions that overlap.
    ids = leased(client, range(100, 110))
    client.archive("orders", ids[5:])
    assert sorted(driver.step()) == list(range(105, 110))
    client.archive("orders", ids[:5])
    assert sorted(driver.step()) == list(range(100, 105))
    # A replay reads the same, whatever came since and however it is cut.
    archived(client, range(200, 210))
    driver.restart()
    assert sorted(driver.read(start, driver.offset)) in (list(range(100, 105)), list(range(100, 110)))
    assert sorted(driver.step()) == list(range(200, 210))


def test_open_transaction_stalls_nothing_and_loses_nothing(
    client: Client, database: str, drive: Drive
) -> None:
    ids = leased(client, range(30))
    with psycopg.connect(database) as late, psycopg.connect(database) as undone:
        late.execute("select pgmq.archive('orders', %s)", [ids[:10]])
        undone.execute("select pgmq.archive('orders', %s)", [ids[10:20]])
        client.archive("orders", ids[20:])
        driver = drive()
        assert driver.rest() == Counter(range(20, 30))
        undone.rollback()
        late.commit()
    assert driver.rest() == Counter(range(10))
    assert driver.rest() == Counter()


def test_transaction_that_begins_early_and_writes_late_is_read(
    client: Client, database: str, drive: Drive
) -> None:
    # It archives under the time of its beginning, long before the position that does not see it.
    ids = leased(client, range(3))
    with psycopg.connect(database) as late:
        late.execute("select 1")
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("select pgmq.archive('orders', %s)", [ids[:1]])
        driver = drive()
        assert driver.rest() == Counter([0])
        late.execute("select pgmq.archive('orders', %s)", [ids[1:]])
    assert driver.rest() == Counter([1, 2])


def test_what_a_savepoint_holds_is_read_when_its_transaction_is_committed(
    client: Client, database: str, drive: Drive
) -> None:
    # Its rows name a transaction of their own, which no snapshot names, between two that were seen to end.
    ids = leased(client, range(30))
    with psycopg.connect(database) as late:
        late.execute("select pgmq.archive('orders', %s)", [ids[:1]])
        for first in (1, 6):
            with late.transaction():
                late.execute("select pgmq.archive('orders', %s)", [ids[first : first + 5]])
            client.archive("orders", ids[first + 10 : first + 15])
        driver = drive()
        assert driver.rest() == Counter(range(11, 21))
        client.archive("orders", ids[21:])
        assert driver.rest() == Counter(range(21, 30))
        late.commit()
    assert driver.rest() == Counter(range(11))
    assert driver.rest() == Counter()


def test_slow_committers_lose_nothing(client: Client, database: str, drive: Drive) -> None:
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
    driver = drive()
    found: Counter[int] = Counter()
    try:
        for _ in range(12):
            for _ in range(4):
                steps.release()
            found += driver.rest(25)
    finally:
        is_over.set()
        steps.release(10_000)
        for writer in writers:
            writer.join()
    found += driver.rest(25)
    assert found == Counter(range(8 * per_writer))


def test_stream_may_begin_with_what_comes(client: Client, database: str, drive: Drive) -> None:
    archived(client, range(10))
    driver = drive(startingOffsets="latest")
    assert driver.rest() == Counter()
    archived(client, range(20, 25))
    assert driver.rest() == Counter(range(20, 25))


def shorten(connection: psycopg.Connection[Any], retention: str = "0.001 s") -> None:
    """Let retention delete from the archive of orders what is older than this, and then nothing more."""
    connection.execute("select pgmq.set_policy('orders', %s)", [json.dumps({"archive_retention": retention})])
    past = "select count(*) from pgmq.a_orders where archived_at < now() - %s::interval"
    while connection.execute(past, [retention]).fetchone() != (0,):
        connection.execute("select * from pgmq.maintain()")
    connection.execute("select pgmq.set_policy('orders', '{\"archive_retention\": null}')")


def test_retention_faster_than_the_stream_is_told(client: Client, database: str, drive: Drive) -> None:
    archived(client, range(5))
    strict, lenient = drive(), drive(failOnDataLoss="false")
    assert strict.rest() == lenient.rest() == Counter(range(5))
    archived(client, range(5, 10))
    with psycopg.connect(database, autocommit=True) as connection:
        shorten(connection)
    archived(client, range(10, 15))
    with pytest.raises(MessagesLostError, match="retention has deleted"):
        strict.rest()
    assert lenient.rest() == Counter(range(10, 15))
    # That was told once: from there on it goes on.
    archived(client, range(15, 20))
    assert lenient.rest() == Counter(range(15, 20))


def test_retention_of_what_a_stream_is_in_the_middle_of_is_told(
    client: Client, database: str, drive: Drive
) -> None:
    archived(client, range(10))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update pgmq.a_orders set archived_at = archived_at - interval '1 hour'")
        archived(client, range(10, 20))
        strict, lenient = drive(), drive(failOnDataLoss="false")
        for driver in (strict, lenient):
            assert driver.step() == []
            assert sorted(driver.step(5)) == list(range(5))
        shorten(connection, "30 minutes")
        assert connection.execute("select min(msg_id) from pgmq.a_orders").fetchone() == (11,)
    with pytest.raises(MessagesLostError, match="of 15 archived messages to be read only 10 are left"):
        strict.step()
    assert sorted(lenient.step()) == list(range(10, 20))


@pytest.mark.parametrize("writes", [False, True])
def test_transaction_that_is_open_for_longer_than_the_retention_looks_like_no_loss(
    client: Client, database: str, drive: Drive, writes: bool
) -> None:
    client.create_queue("others")
    with (
        psycopg.connect(database, autocommit=True) as connection,
        psycopg.connect(database) as elsewhere,
    ):
        archived(client, range(1))
        shorten(connection)
        elsewhere.execute("select pgmq.send('others', '1')" if writes else "select 1")
        archived(client, range(5))
        driver = drive()
        assert driver.rest() == Counter(range(5))
        shorten(connection)
        archived(client, range(5, 10))
        assert driver.rest() == Counter(range(5, 10))
        shorten(connection)
        elsewhere.commit()
        archived(client, range(10, 15))
        assert driver.rest() == Counter(range(10, 15))


@pytest.mark.parametrize("savepoint", [False, True])
def test_loss_of_what_came_late_and_went_at_once_is_told(
    client: Client, database: str, drive: Drive, savepoint: bool
) -> None:
    ids = leased(client, range(10))
    with psycopg.connect(database, autocommit=True) as connection:
        with psycopg.connect(database) as late:
            late.execute("select pg_current_xact_id()")
            if savepoint:
                late.execute("savepoint s")
            late.execute("select pgmq.archive('orders', %s)", [ids[:5]])
            client.archive("orders", ids[5:6])
            # Known is what retention does from here on.
            shorten(connection)
            client.archive("orders", ids[6:])
            driver = drive()
            assert driver.rest() == Counter(range(6, 10))
        shorten(connection)
        known = connection.execute("select jsonb_array_length(late) from spanmq.archive_gone").fetchone()
        assert known == (2,)
    with pytest.raises(MessagesLostError, match="retention has deleted"):
        driver.rest()


def test_batch_of_which_something_is_gone_is_told(client: Client, database: str, drive: Drive) -> None:
    archived(client, range(5))
    strict, lenient = drive(), drive(failOnDataLoss="false")
    for driver in (strict, lenient):
        driver.step()
        start = driver.offset
        assert len(driver.step()) == 5
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from pgmq.a_orders where msg_id = 3")
    with pytest.raises(MessagesLostError, match="of 5 archived messages of a batch only 4 are left"):
        strict.read(start, strict.offset)
    assert lenient.read(start, lenient.offset) == [0, 1, 3, 4]


def test_what_it_can_not_go_on_with_is_refused(client: Client, database: str, drive: Drive) -> None:
    archived(client, range(5))
    driver = drive()
    driver.rest()
    client.drop_queue("orders")
    client.create_queue("orders")
    with pytest.raises(PipelineError, match="not of this archive"):
        driver.step()
    with pytest.raises(InvalidArgumentError, match="Did you mean latest"):
        drive(startingOffsets="lates")
    with pytest.raises(QueueNotFoundError, match="order"):
        drive(queue="order").step()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create role reader_of_nothing login; grant usage on schema pgmq to reader_of_nothing;"
            "grant select on pgmq.q_orders to reader_of_nothing"
        )
        try:
            with pytest.raises(MissingPrivilegeError, match="archive of queue orders"):
                drive(dsn=database.replace("postgres@", "reader_of_nothing@")).step()
        finally:
            connection.execute("drop owned by reader_of_nothing; drop role reader_of_nothing")
