"""What a worker asks its database while there is nothing to do, and before there is."""

import threading
from collections import Counter
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.client.concurrency import until
from tests.patience import WAIT_SECONDS, wait_until
from tests.schemas import qualified
from tests.worker.running import waiting_for_a_lock, working
from tests.worker.test_due import WAITS

import spanmq
from spanmq import Client, Message
from spanmq.client import polling
from spanmq.worker.event import MessageHandled, MessagesReceived
from spanmq.worker.observing import reporting

IDLE_CALLS = ("poll", "await_messages", "report_worker")
# A session looks what the database holds, receives nothing and acks nothing; that of notifications listens.
OPENING = 3
WAITING_POLL, WAITING_PASS_ON = waiting_for_a_lock("poll"), waiting_for_a_lock("pass_on")
# The bell of the worker was rung so long ago that it may be rung again.
RINGS_AGAIN = (
    "select ((extract(epoch from clock_timestamp()) * 1000)::bigint - state) & 1048575 > 50 from spanmq_core.listener l"
    " cross join pg_sequence_last_value(('spanmq_core.bell_' || l.bell)::regclass) state"
)


class Queries:
    """Every statement of this process's asynchronous connections to one database, with its session.

    Services of other tests may run in this process: they are connected to other databases.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
        self.all: list[tuple[int, str]] = []
        self._changed = threading.Condition()
        execute = psycopg.AsyncCursor.execute
        database = conninfo_to_dict(dsn)["dbname"]

        async def note(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            text = query if isinstance(query, str) else str(query)
            session = cursor.connection.info
            if session.dbname == database:
                with self._changed:
                    self.all.append((session.backend_pid, text))
                    self._changed.notify_all()
            return await execute(cursor, query, *arguments, **options)

        monkeypatch.setattr(psycopg.AsyncCursor, "execute", note)

    def of(self, function: str) -> list[tuple[int, str]]:
        return [each for each in self.all if f"{qualified(function)}(" in each[1]]

    def since(self, count: int) -> list[str]:
        """Return the texts after the first `count`, without those with which a session begins: it may at any time."""
        asked: Counter[int] = Counter()
        texts = []
        for number, (session, text) in enumerate([*self.all]):
            asked[session] += 1
            if number >= count and asked[session] > OPENING:
                texts.append(text)
        return texts

    def wait(self, function: str, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(function)) >= count, WAIT_SECONDS), self.all


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch, database: str) -> Queries:
    return Queries(monkeypatch, database)


def test_worker_that_no_notification_reaches_looks_more_often(
    client: Client, database: str, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "HEARD_SECONDS", 3_600.0)
    with working(database, print, pooler=True):
        queries.wait("poll", 6)


def test_queues_of_a_worker_are_polled_in_one_statement_over_few_connections(
    client: Client, database: str, queries: Queries
) -> None:
    names = [f"q{number}" for number in range(40)]
    for name in names:
        client.queues.create(name)
    with working(database, lambda message: None, queues=names, poll_interval=0.02) as record:
        queries.wait("poll", len(queries.of("poll")) + 5)
        before = len(queries.all)
        queries.wait("poll", len(queries.of("poll")) + 5)
        asked = [text for text in queries.since(before) if "upcoming" not in text and "maintain" not in text]
        assert all(any(f"{qualified(name)}(" in text for name in IDLE_CALLS) for text in asked), asked
        client.send("q17", 1)
        assert record.outcomes(1) == ["acked"]
    # Each with what it asked first; a poll, a report and maintenance may come together.
    assert len({session for session, _ in queries.all}) <= 8
    # Each session makes one of none when it begins.
    taken = [text for _, text in queries.of("receive")]
    assert len(taken) - len({session for session, _ in queries.of("receive")}) <= 3


def test_single_messages_of_several_queues_take_one_receive_each(
    client: Client, database: str, queries: Queries
) -> None:
    names = [f"q{number}" for number in range(6)]
    for name in names:
        client.queues.create(name)
        client.send(name, 1)
    with working(database, lambda message: None, queues=names, concurrency=1, poll_interval=0.02) as record:
        assert record.outcomes(6) == ["acked"] * 6
        queries.wait("poll", len(queries.of("poll")) + 3)
    taken = queries.of("receive")
    # Each session makes one of none when it begins.
    assert len(taken) - len({session for session, _ in taken}) == 6


def test_worker_without_a_free_slot_passes_messages_on(client: Client, database: str) -> None:
    slots = threading.Barrier(2)

    def handle(message: Message) -> None:
        # Passes when both workers handle one.
        slots.wait(WAIT_SECONDS)

    rare = {"concurrency": 1, "poll_interval": 3_600.0}
    with working(database, handle, **rare) as one, working(database, handle, **rare) as two:
        for _ in range(5):
            with client.transaction() as transaction:
                transaction.send("orders", 1)
                transaction.send("orders", 2)
        assert one.outcomes(5) == ["acked"] * 5
        assert two.outcomes(5) == ["acked"] * 5


def test_worker_whose_slots_filled_during_a_poll_is_woken_again(
    client: Client, database: str, observer: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # It polls only after a receive, and when it has a free slot again.
    monkeypatch.setattr(polling, "HEARD_FIRST_SECONDS", 3_600.0)
    are_free = threading.Event()

    def handle(message: Message) -> None:
        if message.body == "long":
            are_free.wait(WAIT_SECONDS)

    with (
        psycopg.connect(database) as other,
        working(database, handle, concurrency=2, poll_interval=3_600.0) as record,
    ):
        until(observer, WAITS)
        other.execute("lock table spanmq_core.policy in access exclusive mode")
        client.send("orders", "short")
        record.wait(MessageHandled)
        wait_until(lambda: observer.execute(WAITING_POLL.encode()).fetchone())
        until(observer, RINGS_AGAIN)
        client.send_batch("orders", ["long", "long"])
        record.wait(MessagesReceived, 2)
        until(observer, RINGS_AGAIN)
        client.send("orders", "for another")
        wait_until(lambda: observer.execute(WAITING_PASS_ON.encode()).fetchone())
        # The server may have the poll or this call last.
        client.ack(client.receive("orders"))
        other.rollback()
        wait_until(
            lambda: not observer.execute(f"{WAITING_POLL} union all {WAITING_PASS_ON}".encode()).fetchone()
        )
        are_free.set()
        until(observer, WAITS)
        client.send("orders", "short")
        record.wait(MessagesReceived, 3)


def test_new_session_makes_its_first_calls_before_a_message_waits_for_it(
    client: Client, database: str, queries: Queries
) -> None:
    client.send_batch("orders", range(200))
    with working(database, lambda message: None, batch=10) as record:
        assert record.outcomes(200) == ["acked"] * 200
    sessions: dict[int, list[str]] = {}
    for session, text in queries.all:
        sessions.setdefault(session, []).append(text)
    receiving = [texts for texts in sessions.values() if any("spanmq.receive(" in text for text in texts)]
    assert receiving
    for texts in receiving:  # the first looks what the database holds
        assert "spanmq.receive(" in texts[1], texts[:4]
        assert "spanmq.ack(" in texts[2], texts[:4]


@pytest.mark.unrecorded
def test_session_that_can_not_be_made_ready_serves_all_the_same(client: Client, database: str) -> None:
    client.queues.create("events")
    with working(database, lambda message: None, queues=["orders", "events"], poll_interval=0.05) as record:
        client.queues.drop("orders")
        with psycopg.connect(database, autocommit=True) as other:
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and application_name = 'spanmq worker'"
            )
        client.send_batch("events", range(50))
        assert record.outcomes(50) == ["acked"] * 50


def test_progress_is_reported_once_in_its_time(
    client: Client, database: str, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "PROGRESS_SECONDS", 3_600.0)

    def handle(message: Message) -> None:
        for number in range(100):
            spanmq.progress(number / 100)

    with working(database, handle) as record:
        queries.wait("report_worker", 1)
        client.send("orders", 1)
        assert record.outcomes(1) == ["acked"]
    # The first report, and the last one.
    assert len(queries.of("report_worker")) == 2
