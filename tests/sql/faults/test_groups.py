"""W10: locks that hold what nobody took."""

import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection, column, one

GROUPS = 50


def send_groups(session: Connection, queue: str) -> None:
    session.execute("select pgmq.create(%s)", [queue])
    session.execute(
        "select count(*) from pgmq.send_batch(%s, array(select to_jsonb(n) from generate_series(1, %s) n),"
        " array(select jsonb_build_object('x-pgmq-group', n) from generate_series(1, %s) n))",
        [queue, GROUPS, GROUPS],
    )


def test_w10_a_group_is_locked_in_its_own_queue_only(system: System, session: Connection) -> None:
    send_groups(session, "orders")
    send_groups(session, "invoices")
    other = system.connect()
    with session.transaction():
        assert one(session, f"select count(*) from pgmq.read_grouped_rr('orders', 100, {GROUPS})") == GROUPS
        free = one(other, f"select count(*) from pgmq.read_grouped_rr('invoices', 100, {GROUPS})")
    assert free == (0 if system.is_upstream else GROUPS)


def test_w10_a_reader_locks_only_the_groups_that_it_takes(system: System, session: Connection) -> None:
    send_groups(session, "orders")
    # The first grouped read of a queue makes its locks.
    session.execute("select pgmq.read_grouped_rr('orders', 0, 1)")
    other = system.connect()
    with session.transaction():
        assert column(session, "select msg_id from pgmq.read_grouped_rr('orders', 100, 1)") == [1]
        taken = column(other, "select msg_id from pgmq.read_grouped_rr('orders', 100, 2)")
    # PGMQ takes a lock for each group that there is, and no other reader gets any. The locks of the whole
    # server are limited: with 30,000 groups the read fails.
    assert taken == ([] if system.is_upstream else [2, 3])


def test_w10_a_call_takes_at_most_500_groups(system: System, session: Connection) -> None:
    if system.is_upstream:
        pytest.skip("it locks every group that there is: see above")
    session.execute("select pgmq.create('orders')")
    session.execute(
        "select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[600]),"
        " array(select jsonb_build_object('x-pgmq-group', n) from generate_series(1, 600) n))"
    )
    for read in ("read_grouped", "read_grouped_rr", "read_grouped_head"):
        with session.transaction(force_rollback=True):
            assert one(session, f"select count(*) from pgmq.{read}('orders', 100, 600)") == 500
            assert one(session, f"select count(*) from pgmq.{read}('orders', 100, 600)") == 100
