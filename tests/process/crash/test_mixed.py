"""Senders, consumers and maintenance, each at random, with an audit by what each of them saw committed."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from tests.schemas import qualified
from tests.sql.model.invariants import broken_invariants
from tests.sql.race.sessions import side_by_side
from tests.sql.seeds import IS_DEEP

STEPS = 600 if IS_DEEP else 200
SENDERS, CONSUMERS = 4, 6
GROUP = '{"x-pgmq-group": "%s"}'


class Log:
    """What was committed, as those know who did it."""

    def __init__(self) -> None:
        self.sent: set[int] = set()
        self.settled: Counter[int] = Counter()
        self.are_sending = SENDERS
        self._lock = threading.Lock()

    def note(self, *, sent: list[int] = [], settled: list[int] = [], ended: int = 0) -> None:  # noqa: B006
        with self._lock:
            self.sent.update(sent)
            self.settled.update(settled)
            self.are_sending -= ended


def send(choose: random.Random, call: Callable[..., list[int]], log: Log, step: int) -> None:
    """Send something in a transaction that may be long, or be rolled back in part or as a whole."""
    sent = []
    call(f"begin isolation level {choose.choice(['read committed'] * 3 + ['repeatable read'])}")
    for part in range(choose.choice([1, 1, 3])):
        call(f"savepoint part_{part}")
        n = choose.choice([1, 2, 9, 40, 300])
        ids = call(
            *choose.choice(
                [
                    ("select pgmq.send('jobs', '1')",),
                    ("select pgmq.send('jobs', '1', %s)", choose.choice([0, 1])),
                    ("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s::int]))", n),
                    ("select pgmq.send('jobs', '1', %s::jsonb)", GROUP % choose.choice("abc")),
                ]
            )
        )
        if choose.random() < 0.2:
            call(f"rollback to part_{part}")
        else:
            sent += ids
    if step % 20 == 0:
        # Long, compared with what the others do.
        for _ in range(20):
            call("select pg_current_xact_id()::text::bigint")
    if choose.random() < 0.2:
        call("rollback")
    else:
        call("commit")
        log.note(sent=sent)


def consume(
    choose: random.Random, call: Callable[..., list[int]], log: Log, step: int, known: list[Any]
) -> None:
    """Take something and do with it what a worker may do, right or wrong."""
    call(
        f"begin isolation level {choose.choice(['read committed'] * 6 + ['repeatable read', 'serializable'])}"
    )
    n, seconds = choose.choice([1, 1, 3, 10, 17, 300]), choose.choice([0.0, 0.05, 1.0, 30.0])
    lease = None
    if choose.random() < 0.6:
        slots = choose.choice([1, 1, 3])
        ids = call("select msg_id, lease_id from spanmq.receive('jobs', %s, %s, %s)", n, seconds, slots)
        lease, ids = (ids[0][1], [row[0] for row in ids]) if ids else (None, [])  # type: ignore[index]
    else:
        ids = call("select msg_id from pgmq.read('jobs', %s, %s)", int(seconds), n)
    if is_apart := choose.random() < 0.5:
        # What was taken first, and one settlement by itself: two of one may wait for two of another.
        call("commit")
        call("begin")
    settled: list[int] = []
    some = ids[: choose.randrange(len(ids) + 1)]
    match choose.randrange(6):
        case 0:
            settled = call("select pgmq.delete('jobs', %s::bigint[])", some)
        case 1:
            for each in some[: 1 if is_apart else 30]:
                settled += [each] * sum(call("select pgmq.delete('jobs', %s::bigint)::int", each))
        case 2:
            settled = call("select pgmq.archive('jobs', %s::bigint[])", some)
        case 3:
            call("select msg_id from pgmq.set_vt('jobs', %s::bigint[], 0)", some)
        case _:
            # Also a lease of long ago: where this transaction holds nothing that others may wait for.
            known.append((lease, ids))
            if is_apart and choose.random() < 0.3:
                lease, some = choose.choice(known)
            if lease is not None and choose.random() < 0.7:
                settled = call(
                    "select msg_id from spanmq.ack('jobs', %s, %s) where outcome = 'acked'", lease, some
                )
            elif lease is not None:
                act = choose.choice(["nack('jobs', %s, %s, retry_in => 0)", "release('jobs', %s, %s)"])
                call(f"select msg_id from {qualified(act)}", lease, some)
            elif is_apart:
                call("select spanmq.extend('jobs', %s, 1)", choose.choice(known)[0] or 1)
    if choose.random() < 0.2:
        call("rollback")
    else:
        call("commit")
        log.note(settled=settled)


@pytest.mark.parametrize("seed", range(3 if IS_DEEP else 1))
def test_nothing_is_lost_or_settled_twice_in_mixed_load(database: str, seed: int) -> None:
    log = Log()

    def run(number: int) -> None:
        choose, known = random.Random(f"{seed} {number}"), list[Any]()
        with psycopg.connect(database, autocommit=True) as connection:

            def call(text: str, *arguments: Any) -> list[int]:
                cursor = connection.execute(text.encode(), arguments or None)
                rows = cursor.fetchall() if cursor.description else []
                return rows if rows and len(rows[0]) > 1 else [row[0] for row in rows]  # type: ignore[return-value]

            try:
                for step in range(STEPS):
                    try:
                        if number < SENDERS:
                            send(choose, call, log, step)
                        else:
                            consume(choose, call, log, step, known)
                    except SerializationFailure:
                        connection.rollback()
            finally:
                log.note(ended=int(number < SENDERS))

    def maintain() -> None:
        choose = random.Random(seed)
        with (
            psycopg.connect(database, autocommit=True) as connection,
            psycopg.connect(database, autocommit=True) as holder,
        ):
            while log.are_sending > 0:
                # A snapshot that is held meanwhile, now and then.
                holder.execute("begin isolation level repeatable read")
                holder.execute("select count(*) from spanmq_core.fresh")
                for _ in range(choose.randrange(60)):
                    connection.execute("select * from spanmq.maintain()")
                holder.execute("commit")

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('jobs')")
        side_by_side(*(partial(run, number) for number in range(SENDERS + CONSUMERS)), maintain)
        assert broken_invariants(connection) == []
        left = {row[0] for row in connection.execute("select msg_id from pgmq.q_jobs")}
        assert [each for each, n in log.settled.items() if n > 1] == []
        assert (left & set(log.settled), left | set(log.settled)) == (set(), log.sent)
        # Whatever lease or delay it is under, each of them can be had.
        connection.execute("select pgmq.set_vt('jobs', array(select msg_id from pgmq.q_jobs), 0)")
        found: set[int] = set()
        while rows := connection.execute("select msg_id from pgmq.read('jobs', 600, 1000)").fetchall():
            found |= {row[0] for row in rows}
        assert found == left
