"""A worker's side of the ordered groups: what it takes, when it acks, and what it waits for."""

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
from spanmq_lab.simulate import engine_spanmq
from spanmq_lab.simulate.engine_spanmq import SpanmqReceiver, SpanmqSender, SpanmqStage
from spanmq_lab.simulate.load import Item, Taken
from spanmq_lab.simulate.options import Options, Site
from spanmq_lab.simulate.record import Recorder

# Nested too deeply for Python's reader of JSON.
DEEP = "[" * 5_000 + "]" * 5_000


class Place:
    """Queues, somebody who sends to the first, and workers that serve it."""

    def __init__(self, dsn: str, folder: Path, **options: Any) -> None:
        self.site = Site(
            dsn, "simulate_test", folder / "log", 0.0, Options.from_record({"types": 1, **options})
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
    """No ack goes by the clock here."""
    monkeypatch.setattr(engine_spanmq, "GATHER_SECONDS", 3600.0)
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

    def join(self) -> Sequence[Taken]:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        return self.taken


def ids(taken: Sequence[Taken]) -> list[int]:
    return [each.id for each in taken]


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


def test_run_that_is_through_frees_its_key_while_the_worker_goes_on(place: Place) -> None:
    place.send("a", "b", "a", "b")
    busy, idle = place.worker(), place.worker()
    taken = busy.take()
    place.send("a", "b")
    first, second = taken[:2], taken[2:]
    busy.done(first[0])
    assert place.settled() == []
    assert ids(idle.take()) == []
    busy.done(first[1])  # only now its ack goes out, and that of the message before it
    assert place.settled() == [ids(first)]
    assert ids(idle.take()) == [5 if first[0].origin.group == "a" else 6]
    assert all(busy.holds(each) for each in second)


def test_what_is_handled_is_acked_before_more_is_taken(place: Place) -> None:
    place.send("a", "a", "a")
    worker = place.worker()
    for each in worker.take()[:2]:
        worker.done(each)
    assert place.settled() == []
    worker.take()
    assert place.settled() == [[1, 2]]


def test_idle_worker_gets_what_is_sent_and_what_falls_due(place: Place) -> None:
    first, second = place.worker(), place.worker()
    waiter = Waiter(first)
    wait_until(lambda: first.idle_polls > 0)
    place.send("a")
    [message] = waiter.join()
    assert message.id == 1
    waiter = Waiter(second)
    assert first.fail(message, category="TRANSIENT") == "retrying"
    assert ids(waiter.join()) == [1]


def test_worker_has_two_connections(place: Place, database: str) -> None:
    place.send("a", "a")
    others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    before = ask(database, f"select coalesce(array_agg(pid), '{{}}') {others}")
    worker = place.worker()
    for each in worker.take():
        worker.done(each)
    assert [worker.take(), worker.take()] == [[], []]
    # Who asked before may not have left yet, and what listens may not have come.
    wait_until(lambda: ask(database, f"select count(*) {others} and pid <> all (array{before}::int[])") == 2)
