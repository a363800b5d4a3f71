"""Senders notify while somebody waits, and only then."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from tests.sql.conformance.listening import Listener, listening
from tests.sql.queue import Connection, column, one, rows
from tests.sql.race.sessions import Race

CHANNEL = "spanmq.q_myorders"
SENDS = {
    "send": "select pgmq.send('MyOrders', '1')",
    "send with headers": "select pgmq.send('MyOrders', '1', '{}'::jsonb)",
    "send_batch": "select pgmq.send_batch('MyOrders', '{1,2}')",
    "send_messages": "select spanmq.send_messages('MyOrders', '{1,2}', priority => 1)",
    "send_topic": "select pgmq.send_topic('a', '1')",
    "copy": "select spanmq.copy_publish('MyOrders', array[first_id], array[last_id]) from copied",
}


@pytest.fixture
def session(database: str) -> Iterator[Connection]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('MyOrders')")
        yield connection


@pytest.fixture
def listener(database: str, session: Connection) -> Iterator[Listener]:
    with listening(database, CHANNEL, "pgmq.q_myorders.INSERT") as opened:
        yield opened


def wait(session: Connection, seconds: float = 60) -> Any:
    """Say that somebody waits."""
    row = session.execute("select spanmq.await_messages('MYORDERS', %s)", [seconds]).fetchone()
    return None if row is None else row[0]


def forget_last(session: Connection) -> None:
    """Let the throttle's time pass."""
    session.execute(
        "select setval('spanmq_core.woken_1', pg_sequence_last_value('spanmq_core.woken_1') - 11)"
    )


def clock(session: Connection, name: str, seconds: float) -> None:
    """Set one of the queue's clocks to so many seconds from now."""
    session.execute(
        f"select setval('spanmq_core.{name}_1', (extract(epoch from now()) * 1000)::bigint + %s)".encode(),
        [round(seconds * 1000)],
    )


@pytest.mark.parametrize("kind", SENDS)
def test_every_send_wakes_who_waits(session: Connection, listener: Listener, kind: str) -> None:
    session.execute("select pgmq.bind_topic('a', 'MyOrders')")
    session.execute("create temporary table copied (first_id bigint, last_id bigint)")

    def send() -> None:
        with session.transaction():
            if kind == "copy":
                rows = session.execute("select * from spanmq.copy_begin('MyOrders', 3)").fetchall()
                [(log, first, last, at)] = rows
                session.execute("delete from copied")
                session.execute("insert into copied values (%s, %s)", [first, last])
                for msg_id in range(first, last + 1):
                    text = f"insert into spanmq_core.{log} (msg_id, enqueued_at) values (%s, %s)"
                    session.execute(text.encode(), [msg_id, at])
            session.execute(SENDS[kind].encode())

    send()
    assert listener.heard(session) == []
    assert wait(session) == CHANNEL
    send()
    assert listener.heard(session) == [(CHANNEL, "")]


def test_nobody_is_woken_after_the_wait(session: Connection, listener: Listener) -> None:
    wait(session)
    clock(session, "waiting", -0.001)
    rows(session, SENDS["send"])
    session.execute(SENDS["send_batch"].encode())
    assert listener.heard(session) == []


def batch(*groups: str | None) -> str:
    """Return what sends a message of each group, in one batch."""
    headers = ", ".join(
        "null" if group is None else f"""'{{"x-pgmq-group": "{group}"}}'""" for group in groups
    )
    bodies = f"array_fill('1'::jsonb, array[{len(groups)}])"
    return f"select pgmq.send_batch('MyOrders', {bodies}, array[{headers}]::jsonb[])"


def policy(settings: str) -> str:
    return f"select spanmq.set_policy('MyOrders', '{{{settings}}}')"


def take(n: int = 1) -> str:
    return f"select spanmq.receive('MyOrders', {n})"


# Of the newest lease.
LEASE = "'MyOrders', (select max(lease_id) from spanmq_core.held)"
ORDERED, SEND = policy('"ordered": true'), SENDS["send"]
LATER = f"select spanmq.nack({LEASE}, '{{1}}', retry_in => 60)"
REJECT = f"select spanmq.reject({LEASE}, '{{1}}', 'no')"
ACK = f"select spanmq.ack({LEASE}, '{{1}}')"
GROUP = "array[jsonb_build_object('x-pgmq-group', 'a')]"
EXPIRING = f"select spanmq.send_messages('MyOrders', '{{1}}', {GROUP}, expires_in => 60)"
ONCE = "select spanmq.send_messages('MyOrders', '{1}', dedup_ids => '{a}')"
SETTLEMENTS = {
    "ack": ACK,
    "reject": REJECT,
    "nack": f"select spanmq.nack({LEASE}, '{{1}}', 'no', 'PERMANENT')",
}
REMOVALS = {
    "delete": "select pgmq.delete('MyOrders', 1)",
    "delete of many": "select pgmq.delete('MyOrders', array[1])",
    "archive": "select pgmq.archive('MyOrders', 1)",
    "archive of many": "select pgmq.archive('MyOrders', array[1])",
    "delete from the view": "delete from pgmq.q_myorders where msg_id = 1",
}
# What has been done when somebody begins to wait, and what is done then.
WAKING = {
    **{
        f"{name} of the first of group {group}": ((ORDERED, batch(group, group), take()), act)
        for name, act in SETTLEMENTS.items()
        for group in ("a", None)
    },
    **{
        f"{name} of the first of a group": ((ORDERED, batch("a", "a", "b"), take(2)), act)
        for name, act in REMOVALS.items()
    },
    "a send whose time is over": (
        (),
        "select pgmq.send('MyOrders', '1', clock_timestamp() - interval '1 minute')",
    ),
    "a message that is shown again": ((SEND, take()), "select pgmq.set_vt('MyOrders', 1, 0)"),
    "cancel of what a group waits for": (
        (ORDERED, batch("a", "a"), take(), LATER),
        "select spanmq.cancel('MyOrders', '{1}')",
    ),
    "the expiry of what a group waits for": (
        (
            ORDERED,
            EXPIRING,
            batch("a"),
            take(),
            LATER,
            "update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 second'",
        ),
        "select spanmq.maintain()",
    ),
    "a place in a limited group": (
        (policy('"max_in_flight_per_group": 2'), batch("a", "a", "a"), take(2)),
        ACK,
    ),
    "an ack below max_in_flight": ((policy('"max_in_flight": 1'), batch(None, None), take()), ACK),
    "a redrive": ((SEND, take(), REJECT), "select spanmq.redrive('MyOrders', delay => 0)"),
    "a discarded dead letter": (
        (policy('"ordered": true, "dead_letter_blocks_group": true'), batch("a", "a"), take(), REJECT),
        "select spanmq.purge_dead_letters('MyOrders')",
    ),
}
SILENT = {
    "a send for later": ((), "select pgmq.send('MyOrders', '1', 60)"),
    "a batch for later": (
        (),
        "select pgmq.send_batch('MyOrders', '{1}', clock_timestamp() + interval '1 minute')",
    ),
    "messages for later": ((), "select spanmq.send_messages('MyOrders', '{1}', delay => 60)"),
    "a duplicate": ((ONCE,), ONCE),
    "a message that is hidden longer": ((SEND, take()), "select pgmq.set_vt('MyOrders', 1, 60)"),
    "a retry for later": ((SEND, take()), LATER),
    "a redrive for later": ((SEND, take(), REJECT), "select spanmq.redrive('MyOrders', delay => 60)"),
    **{f"{name} in a plain queue": ((batch("a", "b"), take()), act) for name, act in SETTLEMENTS.items()},
    # What is ready is of another group, and was announced.
    **{
        f"{name} of the last of a group": ((ORDERED, batch("a", "b"), take()), act)
        for name, act in SETTLEMENTS.items()
    },
    **{
        f"{name} of the last of a group": ((ORDERED, batch("a", "b", "b"), take(2)), act)
        for name, act in REMOVALS.items()
    },
}


@pytest.mark.parametrize("name", [*WAKING, *SILENT])
def test_who_waits_is_woken_by_what_it_can_receive_then(
    session: Connection, listener: Listener, name: str
) -> None:
    before, act = WAKING.get(name) or SILENT[name]
    for statement in before:
        rows(session, statement)
    if name in WAKING and ORDERED in before:
        assert rows(session, take()) == [], "it has to wait"
    wait(session)
    rows(session, act)
    assert listener.heard(session) == ([(CHANNEL, "")] if name in WAKING else [])
    if name in WAKING:
        assert len(rows(session, take())) == 1


SOON = {
    "send": "select pgmq.send('MyOrders', '1', 2)",
    "send at a time": "select pgmq.send('MyOrders', '1', clock_timestamp() + interval '2 seconds')",
    "send_batch": "select pgmq.send_batch('MyOrders', '{1}', 2)",
    "send_messages": "select spanmq.send_messages('MyOrders', '{1}', delay => 2)",
    "set_vt": "select pgmq.set_vt('MyOrders', 1, 2)",
    "nack": f"select spanmq.nack({LEASE}, '{{1}}', retry_in => 2)",
    "redrive": "select spanmq.redrive('MyOrders', delay => 2)",
}


@pytest.mark.parametrize("kind", SOON)
def test_message_for_soon_wakes_who_waits_so_that_it_looks_ahead(
    session: Connection, listener: Listener, kind: str
) -> None:
    for statement in (SEND, take(), *([REJECT] if kind == "redrive" else [])):
        rows(session, statement)
    wait(session)
    rows(session, SOON[kind])
    assert listener.heard(session) == [(CHANNEL, "")]
    # As if an hour more were to pass: the machine may have stood still since.
    rows(session, "update spanmq_core.held set vt = vt + interval '1 hour'")
    assert 3000 < one(session, "select spanmq.look_ahead('MyOrders')") <= 3602


@pytest.mark.parametrize("is_batch", [True, False])
def test_run_that_is_settled_as_it_goes_wakes_nobody_before_its_end(
    session: Connection, listener: Listener, is_batch: bool
) -> None:
    for statement in (ORDERED, *([batch(*"aaaa")] if is_batch else [batch("a")] * 4)):
        rows(session, statement)
    assert len(rows(session, take(3))) == 3
    wait(session)
    for message, woken in ((1, []), (2, []), (3, [(CHANNEL, "")])):
        rows(session, f"select spanmq.ack({LEASE}, %s)", [message])
        assert listener.heard(session) == woken
    assert column(session, "select msg_id from spanmq.receive('MyOrders', 1)") == [4]


def test_short_wait_does_not_end_a_longer_one(session: Connection, listener: Listener) -> None:
    wait(session, 60)
    wait(session, 0.001)
    session.execute("select pg_sleep(0.002)")
    rows(session, SENDS["send"])
    assert listener.heard(session) == [(CHANNEL, "")]
    # One that a clock set back has left far ahead is no wait.
    clock(session, "waiting", 3600)
    forget_last(session)
    wait(session, 30)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [(CHANNEL, "")]


@pytest.mark.parametrize("call", ["pgmq.send('MyOrders', '1')", "pgmq.set_vt('MyOrders', 1, 0)"])
def test_notifications_are_throttled_and_go_on(session: Connection, listener: Listener, call: str) -> None:
    rows(session, SENDS["send"])
    wait(session)
    sends = f"select {call}, pg_sequence_last_value('spanmq_core.woken_1') from generate_series(1, 200)"
    woken = sorted({at for _, at in rows(session, sends)})
    assert all(later - before > 10 for before, later in pairwise(woken)), (
        "milliseconds, however fast this machine is"
    )
    assert listener.heard(session) == [(CHANNEL, "")]
    forget_last(session)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [(CHANNEL, "")]


def test_sender_that_rolls_back_wakes_nobody(session: Connection, listener: Listener) -> None:
    wait(session)
    with session.transaction(force_rollback=True):
        rows(session, SENDS["send"])
    assert listener.heard(session) == []
    forget_last(session)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [(CHANNEL, "")]


def test_clock_that_was_set_back_neither_silences_nor_wakes_for_ever(
    session: Connection, listener: Listener
) -> None:
    wait(session)
    clock(session, "woken", 3600)
    rows(session, SENDS["send"])
    assert listener.heard(session) == [(CHANNEL, "")]
    clock(session, "woken", -1)
    clock(session, "waiting", 3600)
    rows(session, SENDS["send"])
    assert listener.heard(session) == []


def test_both_kinds_of_notification_go_side_by_side(session: Connection, listener: Listener) -> None:
    session.execute("select pgmq.enable_notify_insert('MyOrders', 0)")
    rows(session, SENDS["send"])
    assert listener.heard(session) == [("pgmq.q_myorders.INSERT", "")]
    wait(session)
    rows(session, SENDS["send"])
    assert sorted(listener.heard(session)) == [("pgmq.q_myorders.INSERT", ""), (CHANNEL, "")]


def test_senders_do_not_wait_for_each_other(session: Connection, database: str) -> None:
    wait(session)
    with psycopg.connect(database) as other:
        # Who waited for the other would wait for ever; who notifies may wait a moment for another database.
        other.execute("set lock_timeout = '20s'")
        with session.transaction():
            rows(session, SENDS["send"])
            other.execute(SENDS["send"].encode())
            other.execute("select spanmq.await_messages('MyOrders')")


def test_who_says_it_in_a_transaction_is_heard_at_once(
    session: Connection, listener: Listener, database: str
) -> None:
    wait(session, 0.001)
    with psycopg.connect(database) as other:
        other.execute("select spanmq.await_messages('MyOrders', 60)")
        rows(session, SENDS["send"])
        assert listener.heard(session) == [(CHANNEL, "")]
        other.rollback()


def test_two_who_are_the_first_to_wait_may_come_at_once(race: Race) -> None:
    one, two = race.begun(), race.open()
    one.value("select spanmq.await_messages(%s)", race.queue)
    later = two.waiting("select spanmq.await_messages(%s)", race.queue)
    one.commit()
    assert later.rows() == [("spanmq.q_jobs",)]
