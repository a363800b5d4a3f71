"""W5 and W12: faults of the interface itself. PGMQ's calls keep them; ours beside them don't have them."""

import time

import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection, column, one

from spanmq.testing.databases import WAIT_SECONDS


def test_w5_a_poll_holds_a_snapshot_until_messages_come(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    poller = system.connect()
    found = system.start(poller, "select msg_id from pgmq.read_with_poll('orders', 100, 1, 60, 10)")
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        row = session.execute(
            "select backend_xmin is not null from pg_stat_activity where pid = %s and wait_event = 'PgSleep'",
            [poller.info.backend_pid],
        ).fetchone()
        # The row may tell of a wait that began after it was seen that there was no snapshot yet.
        if row == (True,) or time.monotonic() > deadline:
            break
    # Documented: whoever wants to wait for messages polls from outside, or listens.
    assert row == (True,)
    session.execute("select pgmq.send('orders', '1')")
    assert found.result() == [(1,)]


def test_w12_pgmq_s_calls_let_a_late_consumer_delete_what_another_holds(
    system: System, session: Connection
) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.send('orders', '1')")
    assert column(session, "select msg_id from pgmq.read('orders', 0, 1)") == [1]
    assert column(system.connect(), "select msg_id from pgmq.read('orders', 100, 1)") == [1]
    # Documented: their calls carry no token.
    assert one(session, "select pgmq.delete('orders', 1)") is True


def test_w12_ack_settles_only_what_its_lease_holds(system: System, session: Connection) -> None:
    if system.is_upstream:
        pytest.skip("PGMQ has no such call")
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.send('orders', '1')")
    (late,) = column(session, "select lease_id from spanmq.receive('orders', 1, 0)")
    (holder,) = column(system.connect(), "select lease_id from spanmq.receive('orders', 1, 100)")
    ack = "select outcome from spanmq.ack('orders', %s, array[1])"
    assert session.execute(ack, [late]).fetchall() == [("stale",)]
    assert one(session, "select queue_length from pgmq.metrics('orders')") == 1
    assert session.execute(ack, [holder]).fetchall() == [("acked",)]
    assert one(session, "select queue_length from pgmq.metrics('orders')") == 0
