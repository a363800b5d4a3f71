"""Senders, consumers and maintenance, each at random, whose history breaks no rule."""

import random
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from lab.bench.history import Recorder, problems
from lab.bench.history.calls import Pending
from lab.bench.history.clients import told
from psycopg.errors import SerializationFailure
from tests.schemas import qualified
from tests.sql.model.invariants import broken_invariants
from tests.sql.race.sessions import side_by_side
from tests.sql.seeds import IS_DEEP

STEPS = 600 if IS_DEEP else 200
SENDERS, CONSUMERS = 4, 6
GROUP = '{"x-pgmq-group": "%s"}'


class Actor:
    """A session, and the calls of its transaction, which have happened once it has committed."""

    def __init__(
        self, connection: psycopg.Connection[Any], recorder: Recorder, choose: random.Random
    ) -> None:
        self._connection = connection
        self._recorder = recorder
        self._pending: list[Pending] = []
        self.choose = choose
        # Leases of long ago, with what they held.
        self.known: list[tuple[int | None, list[int]]] = []

    def run(self, text: str, *arguments: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(text.encode(), arguments or None)
        return cursor.fetchall() if cursor.description else []

    def call(self, text: str, values: Sequence[Any], verb: str, **arguments: Any) -> list[Any]:
        """Run a statement that returns ids, or ids with something, and record what it did."""
        pending = self._recorder.call(verb, **arguments)
        self._pending.append(pending)
        rows = self.run(text, *values)
        got = rows if verb == "receive" else [row[0] for row in rows]
        pending.got = got
        return got

    def end(self, how: str) -> None:
        self.run(how)
        self._note(how == "commit", 0)

    def undo(self, part: int, since: int) -> None:
        self.run(f"rollback to part_{part}")
        self._note(False, since)

    def give_up(self) -> None:
        self._connection.rollback()
        self._note(False, 0)

    @property
    def place(self) -> int:
        return len(self._pending)

    def _note(self, has_happened: bool, since: int) -> None:
        for pending in self._pending[since:]:
            if has_happened:
                pending.end()
            else:
                pending.fail()
        del self._pending[since:]


def send(actor: Actor, step: int) -> None:
    """Send something in a transaction that may be long, or be rolled back in part or as a whole."""
    choose = actor.choose
    actor.run(f"begin isolation level {choose.choice(['read committed'] * 3 + ['repeatable read'])}")
    for part in range(choose.choice([1, 1, 3])):
        actor.run(f"savepoint part_{part}")
        since = actor.place
        n, group = choose.choice([1, 2, 9, 40, 300]), choose.choice("abc")
        sends: list[tuple[str, list[Any], list[str | None]]] = [
            ("select pgmq.send('jobs', '1')", [], [None]),
            ("select pgmq.send('jobs', '1', %s)", [choose.choice([0, 1])], [None]),
            ("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s::int]))", [n], [None] * n),
            ("select pgmq.send('jobs', '1', %s::jsonb)", [GROUP % group], [group]),
        ]
        text, values, groups = choose.choice(sends)
        actor.call(text, values, "send", groups=groups)
        if choose.random() < 0.2:
            actor.undo(part, since)
    if step % 20 == 0:
        # Long, compared with what the others do.
        for _ in range(20):
            actor.run("select pg_current_xact_id()")
    actor.end("rollback" if choose.random() < 0.2 else "commit")


def consume(actor: Actor, step: int) -> None:
    """Take something and do with it what a worker may do, right or wrong."""
    choose = actor.choose
    actor.run(
        f"begin isolation level {choose.choice(['read committed'] * 6 + ['repeatable read', 'serializable'])}"
    )
    n, seconds = choose.choice([1, 1, 3, 10, 17, 300]), choose.choice([0.0, 0.05, 1.0, 30.0])
    if choose.random() < 0.6:
        values = [n, seconds, choose.choice([1, 1, 3])]
        receive = "select msg_id, lease_id from spanmq.receive('jobs', %s, %s, %s)"
        rows = actor.call(receive, values, "receive", seconds=seconds)
    else:
        read = "select msg_id, null::bigint from pgmq.read('jobs', %s, %s)"
        rows = actor.call(read, [int(seconds), n], "receive", seconds=int(seconds))
    ids, lease = [each for each, _ in rows], rows[0][1] if rows else None
    if is_apart := choose.random() < 0.5:
        # What was taken first, and one settlement by itself: two of one may wait for two of another.
        actor.end("commit")
        actor.run("begin")
    some = ids[: choose.randrange(len(ids) + 1)]
    match choose.randrange(6):
        case 0:
            actor.call("select pgmq.delete('jobs', %s::bigint[])", [some], "settle", ids=some)
        case 1:
            one_by_one = "select id from unnest(%s::bigint[]) id where pgmq.delete('jobs', id)"
            few = some[: 1 if is_apart else 30]
            actor.call(one_by_one, [few], "settle", ids=few)
        case 2:
            archive = "select pgmq.archive('jobs', %s::bigint[])"
            actor.call(archive, [some], "settle", ids=some, into="archived")
        case 3:
            actor.call("select msg_id from pgmq.set_vt('jobs', %s::bigint[], 0)", [some], "free", ids=some)
        case _:
            settle_by_lease(actor, lease, ids, some, is_apart=is_apart)
    actor.end("rollback" if choose.random() < 0.2 else "commit")


def settle_by_lease(
    actor: Actor, lease: int | None, ids: list[int], some: list[int], *, is_apart: bool
) -> None:
    """Settle, free or extend, now and then under a lease of long ago: where nothing is held for which others wait."""
    choose = actor.choose
    actor.known.append((lease, ids))
    if is_apart and choose.random() < 0.3:
        lease, some = choose.choice(actor.known)
    if lease is not None and choose.random() < 0.7:
        ack = "select msg_id from spanmq.ack('jobs', %s, %s) where outcome = 'acked'"
        actor.call(ack, [lease, some], "settle", ids=some, lease=lease)
    elif lease is not None:
        act = choose.choice(["nack('jobs', %s, %s, retry_in => 0)", "release('jobs', %s, %s)"])
        text = f"select msg_id from {qualified(act)} where outcome in ('retrying', 'released')"
        actor.call(text, [lease, some], "free", ids=some, lease=lease)
    elif is_apart:
        lease, some = choose.choice(actor.known)
        extend = "select msg_id from spanmq.extend('jobs', %s, %s, 1) where outcome = 'extended'"
        actor.call(extend, [lease or 1, some], "extend", ids=some, lease=lease or 1, seconds=1)


@pytest.mark.parametrize("seed", range(3 if IS_DEEP else 1))
def test_nothing_is_lost_or_settled_twice_in_mixed_load(database: str, tmp_path: Path, seed: int) -> None:
    ended = threading.Semaphore(0)

    def run(number: int) -> None:
        with (
            psycopg.connect(database, autocommit=True) as connection,
            Recorder(tmp_path, f"client {number}") as recorder,
        ):
            actor = Actor(connection, recorder, random.Random(f"{seed} {number}"))
            try:
                for step in range(STEPS):
                    try:
                        (send if number < SENDERS else consume)(actor, step)
                    except SerializationFailure:
                        actor.give_up()
            finally:
                if number < SENDERS:
                    ended.release()

    def maintain() -> None:
        choose = random.Random(seed)
        with (
            psycopg.connect(database, autocommit=True) as connection,
            psycopg.connect(database, autocommit=True) as holder,
        ):
            sending = SENDERS
            while sending > 0:
                # A snapshot that is held meanwhile, now and then.
                holder.execute("begin isolation level repeatable read")
                holder.execute("select count(*) from spanmq_core.unsettled")
                for _ in range(choose.randrange(60)):
                    connection.execute("select * from spanmq.maintain()")
                holder.execute("commit")
                while ended.acquire(blocking=False):
                    sending -= 1

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('jobs')")
        side_by_side(*(partial(run, number) for number in range(SENDERS + CONSUMERS)), maintain)
        assert broken_invariants(connection) == []
        calls = told(tmp_path, connection, "jobs")
        assert problems(calls) == []
        # Whatever lease or delay it is under, each of them can be had.
        connection.execute("select pgmq.set_vt('jobs', array(select msg_id from pgmq.q_jobs), 0)")
        found: set[int] = set()
        while rows := connection.execute("select msg_id from pgmq.read('jobs', 600, 1000)").fetchall():
            found |= {row[0] for row in rows}
        assert found == set(calls[-1].got["left"])
