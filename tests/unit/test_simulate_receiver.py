"""A worker's side of the ordered groups: what it takes, what it waits for, and who is woken."""

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cli.program import ask, wait_until
from tests.patience import WAIT_SECONDS

from spanmq import Client
from spanmq.errors import SpanmqError
from spanmq.simulate import engine_spanmq, settlement
from spanmq.simulate.engine import Site, Taken
from spanmq.simulate.engine_spanmq import SpanmqReceiver, SpanmqSender, SpanmqStage
from spanmq.simulate.load import Item
from spanmq.simulate.options import Options
from spanmq.simulate.record import Recorder

BLOCKED = (
    "select count(*) > 0 from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock' and query ~ 'spanmq.ack'"
)

# Nested too deeply for Python's reader of JSON.
DEEP = "[" * 5_000 + "]" * 5_000


class Place:
    """Queues, somebody who sends to the first, and workers that serve it."""

    def __init__(self, dsn: str, folder: Path, **options: Any) -> None:
        self.site = Site(
            dsn, "simulate_test", folder, folder / "log", 0.0, Options.from_record({"types": 1, **options})
        )
        self.stage = SpanmqStage(self.site)
        self.stage.prepare()
        self._sender = SpanmqSender(self.site)
        self._receivers: list[SpanmqReceiver] = []
        self._sent = 0

    def send(self, *keys: str) -> None:
        items = [Item(self._sent + place, 0, key, 1, {}) for place, key in enumerate(keys, start=1)]
        self._sent += len(keys)
        self._sender.send(items)

    def worker(self) -> SpanmqReceiver:
        types = range(self.site.options.types)
        number = len(self._receivers)
        self._receivers.append(
            SpanmqReceiver(self.site, list(types), Recorder(self.site.log, began=0.0, worker=number))
        )
        return self._receivers[-1]

    def settled(self) -> list[list[int]]:
        return self.written("settled", "ids")

    def written(self, event: str, field: str) -> list[Any]:
        lines = self.site.log.read_text().splitlines()
        return [record[field] for record in map(json.loads, lines) if record["event"] == event]

    def close(self) -> None:
        for receiver in self._receivers:
            receiver.close()
        self._sender.close()
        self.stage.close()


@pytest.fixture
def place(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Nobody looks by the clock here, and no ack goes by it: what happens was announced, or asked for."""
    monkeypatch.setattr(engine_spanmq, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(engine_spanmq, "POLL_SECONDS_MAX", 3600.0)
    monkeypatch.setattr(settlement, "GATHER_SECONDS", 3600.0)
    opened = Place(database, tmp_path)
    try:
        yield opened
    finally:
        opened.close()


class Waiter:
    """A worker that is idle, in a thread of its own, until it takes something."""

    def __init__(self, receiver: SpanmqReceiver) -> None:
        self.receiver = receiver
        self.taken: Sequence[Taken] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # The test is over, and has closed everything.
        with contextlib.suppress(psycopg.Error, SpanmqError, OSError):
            while not self.taken:
                self.taken = self.receiver.take()
                if not self.taken:
                    self.receiver.wait()

    def join(self) -> list[int]:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return ids(self.taken)


def ids(taken: Sequence[Taken]) -> list[int]:
    return [each.id for each in taken]


def waiting(receiver: SpanmqReceiver) -> Waiter:
    """Have a worker find nothing; return after its last look, when it waits for what is announced."""
    waiter = Waiter(receiver)
    wait_until(lambda: receiver.idle_polls >= 3)
    return waiter


def test_runs_are_handled_one_after_the_other(place: Place) -> None:
    place.send("a", "b", "a", "b", "c", "a")
    taken = place.worker().take()
    keys = [each.origin.group for each in taken]
    assert sorted(ids(taken)) == [1, 2, 3, 4, 5, 6]
    assert len([place for place in range(1, 6) if keys[place] != keys[place - 1]]) == 2
    for key in "abc":
        numbers = [each.id for each in taken if each.origin.group == key]
        assert numbers == sorted(numbers)


def test_messages_of_another_sender_become_dead_letters_and_are_written_down(
    place: Place, database: str
) -> None:
    queue = "simulate_test_type1"
    with Client(database) as other:
        other.send(queue, {}, group="a")
        place.send("a", "b")
        other.send(queue, {}, headers={"x-simulate-id": "1"})
        sql = "select pgmq.send(%s, %s::jsonb, %s::jsonb)"
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(sql, (queue, "{}", '"no object"'))
            assert sorted(ids(place.worker().take())) == [1, 2]
            assert place.worker().take() == []
            # With no other message beside it, the client raises what it can't read.
            connection.execute(sql, (queue, DEEP, "{}"))
            assert place.worker().take() == []
        assert {letter.message_id for letter in other.dead_letters.list(queue)} == {1, 4, 5}
    assert sorted(place.written("foreign", "message_id"), key=str) == [1, 4, 5, None]
    assert place.stage.new_dead() == []


def test_run_that_is_through_wakes_who_is_idle_while_the_worker_goes_on(place: Place) -> None:
    place.send("a", "b", "a", "b")
    busy, idle = place.worker(), place.worker()
    taken = busy.take()
    place.send("a", "b")
    waiter = waiting(idle)
    first, second = taken[:2], taken[2:]
    busy.done(first[0])
    assert place.settled() == []
    busy.done(first[1])  # only now its ack goes out, and that of the message before it
    assert waiter.join() == [5 if first[0].origin.group == "a" else 6]
    # The other has its message at the commit; the line in the log comes after it.
    wait_until(lambda: place.settled() != [])
    assert place.settled() == [ids(first)]
    assert all(busy.holds(each) for each in second)


def test_acks_are_gathered_over_runs_where_nobody_is_idle(place: Place) -> None:
    place.send("a", "b", "c", "d")
    worker = place.worker()
    for each in worker.take():
        worker.done(each)
    assert place.settled() == []
    # Asked again, with nothing to be had, all is acked: what is behind it may be free then.
    place.send("a")
    assert ids(worker.take()) == [5]
    assert [sorted(numbers) for numbers in place.settled()] == [[1, 2, 3, 4]]


def test_next_messages_are_taken_before_the_last_acks_are_through(place: Place, database: str) -> None:
    place.send(*"aabb")
    worker, other = place.worker(), place.worker()
    taken = worker.take()
    place.send(*"cdef")
    with psycopg.connect(database) as blocker:
        blocker.execute("select from spanmq_core.held where lease_id > 0 for update")
        for each in taken:
            worker.done(each)
        assert sorted(ids(worker.take())) == [5, 6, 7, 8]  # nobody is idle
        wait_until(lambda: ask(database, BLOCKED))
        assert place.settled() == []
        place.send("a")
        assert ids(other.take()) == []  # the key is not free before
        blocker.rollback()
        wait_until(lambda: place.settled() != [])
    assert ids(other.take()) == [9]


def test_announcement_wakes_one_of_the_idle(place: Place) -> None:
    first, second = place.worker(), place.worker()
    waiters = [waiting(first)]
    waiters.append(Waiter(second))
    wait_until(lambda: second.idle_polls == 1)
    place.send("a")
    assert waiters[0].join() == [1]
    # The next in turn looks soon after, for what was sent at the same time.
    wait_until(lambda: second.idle_polls >= 3)
    place.send("b")
    assert waiters[1].join() == [2]


def test_retry_is_taken_when_it_falls_due(database: str, tmp_path: Path, place: Place) -> None:
    place.send("a")
    first, second = place.worker(), place.worker()
    [message] = first.take()
    waiter = waiting(second)
    assert first.fail(message, category="TRANSIENT") == "retrying"
    # Else it would not be found within the hour.
    assert waiter.join() == [1]


def test_worker_has_two_connections(place: Place, database: str) -> None:
    place.send("a", "a")
    sessions = "select count(*) from pg_stat_activity where datname = current_database()"
    before = ask(database, sessions)
    worker = place.worker()
    for each in worker.take():
        worker.done(each)
    assert worker.take() == []
    assert ask(database, sessions) == before + 2
