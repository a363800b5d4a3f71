"""Senders notify while somebody waits, and only then."""

import json
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.sql.conformance.listening import Listener, listening
from tests.sql.queue import Connection
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
    session.execute(SENDS["send"].encode())
    session.execute(SENDS["send_batch"].encode())
    assert listener.heard(session) == []


def test_message_for_later_wakes_nobody(session: Connection, listener: Listener) -> None:
    wait(session)
    session.execute("select pgmq.send('MyOrders', '1', 60)")
    session.execute("select pgmq.send_batch('MyOrders', '{1}', clock_timestamp() + interval '1 minute')")
    session.execute("select spanmq.send_messages('MyOrders', '{1}', delay => 60)")
    assert listener.heard(session) == []
    session.execute("select pgmq.send('MyOrders', '1', clock_timestamp() - interval '1 minute')")
    assert listener.heard(session) == [(CHANNEL, "")]


def test_message_that_is_shown_again_wakes_who_waits(session: Connection, listener: Listener) -> None:
    session.execute(SENDS["send"].encode())
    session.execute("select pgmq.read('MyOrders', 60, 1)")
    wait(session)
    session.execute("select pgmq.set_vt('MyOrders', 1, 60)")
    assert listener.heard(session) == []
    session.execute("select pgmq.set_vt('MyOrders', 1, 0)")
    assert listener.heard(session) == [(CHANNEL, "")]


def lease(session: Connection) -> Any:
    """Take the first message; give its lease."""
    [(lease_id,)] = session.execute("select lease_id from spanmq.receive('MyOrders', 1)").fetchall()
    return lease_id


def send(session: Connection, *groups: str | None) -> None:
    """Send a message of each group, in one batch."""
    headers = [None if group is None else json.dumps({"x-pgmq-group": group}) for group in groups]
    session.execute(
        "select pgmq.send_batch('MyOrders', array_fill('1'::jsonb, array[%s]), %s::text[]::jsonb[])",
        [len(groups), headers],
    )


def settings(session: Connection, policy: str) -> None:
    session.execute("select spanmq.set_policy('MyOrders', %s)", [policy])


SETTLEMENTS = {
    "ack": "select spanmq.ack('MyOrders', %s, '{1}')",
    "reject": "select spanmq.reject('MyOrders', %s, '{1}', 'no')",
    "nack": "select spanmq.nack('MyOrders', %s, '{1}', 'no', 'PERMANENT')",
}


@pytest.mark.parametrize("kind", SETTLEMENTS)
@pytest.mark.parametrize("group", ["a", None])
def test_settlement_that_frees_a_group_wakes_who_waits(
    session: Connection, listener: Listener, kind: str, group: str | None
) -> None:
    settings(session, '{"ordered": true}')
    send(session, group, group)
    lease_id = lease(session)
    assert session.execute("select * from spanmq.receive('MyOrders', 1)").fetchall() == []
    wait(session)
    session.execute(SETTLEMENTS[kind].encode(), [lease_id])
    assert listener.heard(session) == [(CHANNEL, "")]
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 1)").fetchall() == [(2,)]


@pytest.mark.parametrize("kind", SETTLEMENTS)
def test_settlement_that_frees_nothing_wakes_nobody(
    session: Connection, listener: Listener, kind: str
) -> None:
    wait(session)
    send(session, "a", "b")
    assert len(listener.heard(session)) == 1
    forget_last(session)
    # In a plain queue nobody waits for it.
    session.execute(SETTLEMENTS[kind].encode(), [lease(session)])
    settings(session, '{"ordered": true}')
    # And the group of this one is through: what is ready is of another, and was announced.
    send(session, "c")
    assert len(listener.heard(session)) == 1
    forget_last(session)
    [(lease_id, message_id)] = session.execute(
        "select lease_id, msg_id from spanmq.receive('MyOrders', 1)"
    ).fetchall()
    session.execute(SETTLEMENTS[kind].replace("{1}", f"{{{message_id}}}").encode(), [lease_id])
    assert session.execute("select count(*) from pgmq.q_myorders").fetchone() == (1,)
    assert listener.heard(session) == []


REMOVALS = {
    "delete": "select pgmq.delete('MyOrders', 1)",
    "delete of many": "select pgmq.delete('MyOrders', array[1])",
    "archive": "select pgmq.archive('MyOrders', 1)",
    "archive of many": "select pgmq.archive('MyOrders', array[1])",
    "delete from the view": "delete from pgmq.q_myorders where msg_id = 1",
}


@pytest.mark.parametrize("kind", REMOVALS)
def test_removal_that_frees_a_group_wakes_who_waits(
    session: Connection, listener: Listener, kind: str
) -> None:
    settings(session, '{"ordered": true}')
    send(session, "a", "a", "b")
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 2)").fetchall() == [(1,), (3,)]
    wait(session)
    session.execute(REMOVALS[kind].encode())
    assert listener.heard(session) == [(CHANNEL, "")]
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 1)").fetchall() == [(2,)]
    forget_last(session)
    # Nothing stands behind this one.
    session.execute(REMOVALS[kind].replace("1", "3").encode())
    assert listener.heard(session) == []


def test_cancelled_message_for_which_its_group_waited_wakes_who_waits(
    session: Connection, listener: Listener
) -> None:
    settings(session, '{"ordered": true}')
    send(session, "a", "a")
    session.execute("select spanmq.nack('MyOrders', %s, '{1}', retry_in => 60)", [lease(session)])
    wait(session)
    assert session.execute("select outcome from spanmq.cancel('MyOrders', '{1}')").fetchall() == [
        ("cancelled",)
    ]
    assert listener.heard(session) == [(CHANNEL, "")]


def test_message_that_expires_before_its_retry_wakes_for_its_group(
    session: Connection, listener: Listener
) -> None:
    settings(session, '{"ordered": true}')
    session.execute(
        "select spanmq.send_messages('MyOrders', '{1}',"
        " array[jsonb_build_object('x-pgmq-group', 'a')], expires_in => 60)"
    )
    send(session, "a")
    session.execute("select spanmq.nack('MyOrders', %s, '{1}', retry_in => 60)", [lease(session)])
    session.execute("update spanmq_core.expiry set expires_at = clock_timestamp() - interval '1 second'")
    wait(session)
    session.execute("select spanmq.maintain()")
    assert listener.heard(session) == [(CHANNEL, "")]
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 1)").fetchall() == [(2,)]


SOON = {
    "send": "select pgmq.send('MyOrders', '1', 2)",
    "send at a time": "select pgmq.send('MyOrders', '1', clock_timestamp() + interval '2 seconds')",
    "send_batch": "select pgmq.send_batch('MyOrders', '{1}', 2)",
    "send_messages": "select spanmq.send_messages('MyOrders', '{1}', delay => 2)",
    "set_vt": "select pgmq.set_vt('MyOrders', 1, 2)",
    "nack": "select spanmq.nack('MyOrders', %s, '{1}', retry_in => 2)",
    "redrive": "select spanmq.redrive('MyOrders', delay => 2)",
}


@pytest.mark.parametrize("kind", SOON)
def test_message_for_soon_wakes_who_waits_so_that_it_looks_ahead(
    session: Connection, listener: Listener, kind: str
) -> None:
    session.execute(SENDS["send"].encode())
    held = [lease(session)]
    if kind == "redrive":
        session.execute(SETTLEMENTS["reject"].encode(), held)
    wait(session)
    session.execute(SOON[kind].encode(), held if "%s" in SOON[kind] else None)
    assert listener.heard(session) == [(CHANNEL, "")]
    # As if an hour more were to pass: the machine may have stood still since.
    session.execute("update spanmq_core.held set vt = vt + interval '1 hour'")
    row = session.execute("select spanmq.look_ahead('MyOrders')").fetchone()
    assert row is not None
    assert 3000 < row[0] <= 3602


def test_retry_for_later_wakes_nobody(session: Connection, listener: Listener) -> None:
    session.execute(SENDS["send"].encode())
    held = lease(session)
    wait(session)
    session.execute("select spanmq.nack('MyOrders', %s, '{1}', retry_in => 60)", [held])
    assert listener.heard(session) == []


@pytest.mark.parametrize("is_batch", [True, False])
def test_run_that_is_settled_as_it_goes_wakes_nobody_before_its_end(
    session: Connection, listener: Listener, is_batch: bool
) -> None:
    settings(session, '{"ordered": true}')
    for groups in [["a"] * 4] if is_batch else [["a"]] * 4:
        send(session, *groups)
    [(lease_id,), *_] = rows = session.execute(
        "select lease_id from spanmq.receive('MyOrders', 3)"
    ).fetchall()
    assert len(rows) == 3
    wait(session)
    for message, woken in ((1, []), (2, []), (3, [(CHANNEL, "")])):
        session.execute("select spanmq.ack('MyOrders', %s, %s)", [lease_id, [message]])
        assert listener.heard(session) == woken
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 1)").fetchall() == [(4,)]


def test_place_in_a_limited_group_wakes_who_waits(session: Connection, listener: Listener) -> None:
    settings(session, '{"max_in_flight_per_group": 2}')
    send(session, "a", "a", "a")
    [(lease_id,), _] = session.execute("select lease_id from spanmq.receive('MyOrders', 2)").fetchall()
    wait(session)
    session.execute(SETTLEMENTS["ack"].encode(), [lease_id])
    assert listener.heard(session) == [(CHANNEL, "")]


def test_ack_below_max_in_flight_wakes_who_waits(session: Connection, listener: Listener) -> None:
    settings(session, '{"max_in_flight": 1}')
    session.execute(SENDS["send_batch"].encode())
    lease_id = lease(session)
    wait(session)
    session.execute(SETTLEMENTS["ack"].encode(), [lease_id])
    assert listener.heard(session) == [(CHANNEL, "")]


@pytest.mark.parametrize("delay", [0, 60])
def test_redrive_without_delay_wakes_who_waits(session: Connection, listener: Listener, delay: int) -> None:
    session.execute(SENDS["send"].encode())
    session.execute(SETTLEMENTS["reject"].encode(), [lease(session)])
    wait(session)
    session.execute("select spanmq.redrive('MyOrders', delay => %s)", [delay])
    assert listener.heard(session) == ([] if delay else [(CHANNEL, "")])


def test_dead_letter_that_is_discarded_wakes_for_its_group(session: Connection, listener: Listener) -> None:
    settings(session, '{"ordered": true, "dead_letter_blocks_group": true}')
    send(session, "a", "a")
    session.execute(SETTLEMENTS["reject"].encode(), [lease(session)])
    wait(session)
    session.execute("select spanmq.purge_dead_letters('MyOrders')")
    assert listener.heard(session) == [(CHANNEL, "")]
    assert session.execute("select msg_id from spanmq.receive('MyOrders', 1)").fetchall() == [(2,)]


def test_short_wait_does_not_end_a_longer_one(session: Connection, listener: Listener) -> None:
    wait(session, 60)
    wait(session, 0.001)
    session.execute("select pg_sleep(0.002)")
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [(CHANNEL, "")]
    # One that a clock set back has left far ahead is no wait.
    clock(session, "waiting", 3600)
    forget_last(session)
    wait(session, 30)
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [(CHANNEL, "")]


def test_duplicate_wakes_nobody(session: Connection, listener: Listener) -> None:
    session.execute("select spanmq.send_messages('MyOrders', '{1}', dedup_ids => '{a}')")
    wait(session)
    session.execute("select spanmq.send_messages('MyOrders', '{1}', dedup_ids => '{a}')")
    assert listener.heard(session) == []


def test_notifications_are_throttled_and_go_on(session: Connection, listener: Listener) -> None:
    wait(session)
    started = time.monotonic()
    for _ in range(100):
        session.execute(SENDS["send"].encode())
    most = (time.monotonic() - started) / 0.010 + 2
    assert 1 <= len(listener.heard(session)) <= most
    forget_last(session)
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [(CHANNEL, "")]


def test_sender_that_rolls_back_wakes_nobody(session: Connection, listener: Listener) -> None:
    wait(session)
    with session.transaction(force_rollback=True):
        session.execute(SENDS["send"].encode())
    assert listener.heard(session) == []
    forget_last(session)
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [(CHANNEL, "")]


def test_clock_that_was_set_back_neither_silences_nor_wakes_for_ever(
    session: Connection, listener: Listener
) -> None:
    wait(session)
    clock(session, "woken", 3600)
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [(CHANNEL, "")]
    clock(session, "woken", -1)
    clock(session, "waiting", 3600)
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == []


def test_both_kinds_of_notification_go_side_by_side(session: Connection, listener: Listener) -> None:
    session.execute("select pgmq.enable_notify_insert('MyOrders', 0)")
    session.execute(SENDS["send"].encode())
    assert listener.heard(session) == [("pgmq.q_myorders.INSERT", "")]
    wait(session)
    session.execute(SENDS["send"].encode())
    assert sorted(listener.heard(session)) == [("pgmq.q_myorders.INSERT", ""), (CHANNEL, "")]


def test_senders_do_not_wait_for_each_other(session: Connection, database: str) -> None:
    wait(session)
    with psycopg.connect(database) as other:
        # Who waited for the other would wait for ever; who notifies may wait a moment for another database.
        other.execute("set lock_timeout = '20s'")
        with session.transaction():
            session.execute(SENDS["send"].encode())
            other.execute(SENDS["send"].encode())
            other.execute("select spanmq.await_messages('MyOrders')")


def test_who_says_it_in_a_transaction_is_heard_at_once(
    session: Connection, listener: Listener, database: str
) -> None:
    wait(session, 0.001)
    with psycopg.connect(database) as other:
        other.execute("select spanmq.await_messages('MyOrders', 60)")
        session.execute(SENDS["send"].encode())
        assert listener.heard(session) == [(CHANNEL, "")]
        other.rollback()


def test_dropped_queue_leaves_no_sequences(session: Connection) -> None:
    wait(session)
    session.execute("select pgmq.drop_queue('MyOrders')")
    left = "select count(*) from pg_class where relname in ('waiting_1', 'woken_1')"
    assert session.execute(left.encode()).fetchone() == (0,)
    session.execute("select pgmq.create('MyOrders')")
    assert wait(session) == CHANNEL


def test_two_who_are_the_first_to_wait_may_come_at_once(race: Race) -> None:
    one, two = race.open(), race.open()
    one.begin()
    one.value("select spanmq.await_messages(%s)", race.queue)
    later = two.later("select spanmq.await_messages(%s)", race.queue)
    assert later.waits()
    one.commit()
    assert later.rows() == [("spanmq.q_jobs",)]
