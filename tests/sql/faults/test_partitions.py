"""W19, W20: partitioned queues without pg_partman and without loss, archives that go in time."""

import pytest
from tests.sql.conftest import System
from tests.sql.cost.counts import pages_touched
from tests.sql.queue import Connection, column, one


def maintain(session: Connection) -> list[str]:
    """Call maintain() until there is nothing to do, at most as often as something can be done here."""
    done: list[str] = []
    for _ in range(100):
        actions = column(session, "select action from spanmq.maintain()")
        if not actions:
            return done
        done += actions
    raise AssertionError(f"maintain() did not come to an end: {done[-10:]}")


def test_w19_retention_never_takes_what_was_not_read(system: System, session: Connection) -> None:
    if system.is_upstream:
        pytest.skip("needs pg_partman; its retention drops the partitions of a queue with what is in them")
    session.execute("select pgmq.create_partitioned('orders', '256', '256')")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[3000]))")
    session.execute("select pgmq.archive('orders', array(select generate_series(1, 100)))")
    maintain(session)
    assert one(session, "select queue_length from pgmq.metrics('orders')") == 2900
    assert one(session, "select count(*) from pgmq.read('orders', 100, 5000)") == 2900


def test_w19_a_settlement_touches_one_part_of_the_queue(system: System, session: Connection) -> None:
    if system.is_upstream:
        pytest.skip(
            "needs pg_partman; there a delete looks into every partition of a queue that is cut by time"
        )
    session.execute("select pgmq.create_partitioned('orders', '256', '256')")

    def cost(parts: int) -> list[int]:
        for _ in range(parts):
            session.execute(
                "select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[256]))"
            )
        return [
            pages_touched(session, f"select pgmq.{call}")
            for call in ("delete('orders', 16900)", "archive('orders', 16900)", "set_vt('orders', 16900, 5)")
        ]

    # Behind the first part, which is larger; after it those of 256.
    session.execute("select setval('pgmq.q_orders_msg_id_seq', 16383)")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[4]))")
    few = cost(4)
    assert max(after - before for before, after in zip(few, cost(30), strict=True)) < 5, few


def test_w20_an_archive_is_kept_as_long_as_one_says(system: System, session: Connection) -> None:
    if system.is_upstream:
        pytest.skip("needs pg_partman; without it an archive is kept for ever")
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.convert_archive_partitioned('orders', '1000', '1000')")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[3000]))")
    session.execute("select pgmq.archive('orders', array(select generate_series(1, 3000)))")
    maintain(session)
    assert column(session, "select min(msg_id) from pgmq.a_orders") == [2001]
