"""W18, W22: arguments that surprise, times and orders that are not what they seem."""

import psycopg
import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection, column, one


def test_w18_a_poll_of_no_seconds_returns_nothing(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.send('orders', '1')")
    # Documented: so it is in PGMQ's interface. Our clients look before they wait.
    assert column(session, "select msg_id from pgmq.read_with_poll('orders', 100, 1, 0)") == []


def test_w18_a_quantity_of_null_is_refused(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.send_batch('orders', array['1', '2', '3']::jsonb[])")
    if system.is_upstream:
        assert one(session, "select count(*) from pgmq.read('orders', 100, null)") == 3
        return
    for call in ("read('orders', 100, null)", "pop('orders', null)", "read_grouped('orders', 100, null)"):
        with pytest.raises(psycopg.Error, match="qty cannot be NULL") as raised:
            session.execute(f"select pgmq.{call}")
        assert raised.value.sqlstate == "MQ002"
    assert one(session, "select count(*) from pgmq.read('orders', 100, 10)") == 3


def test_w18_a_negative_delay_is_refused_by_every_send(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.bind_topic('#', 'orders')")
    calls = [
        "send('orders', '1', -1)",
        "send_batch('orders', array['1']::jsonb[], -1)",
        "send_batch_topic('a', array['1']::jsonb[], -1)",
        "send_topic('a', '1', -1)",
    ]
    accepted = calls[:-1] if system.is_upstream else []
    for call in calls:
        if call in accepted:
            session.execute(f"select pgmq.{call}")
        else:
            with pytest.raises(psycopg.Error, match="delay cannot be negative, got: -1"):
                session.execute(f"select pgmq.{call}")


def test_w22_an_untyped_third_argument_is_ambiguous(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    # Documented: the overloads are PGMQ's interface. Named or typed arguments are never ambiguous.
    with pytest.raises(psycopg.errors.AmbiguousFunction):
        session.execute("select pgmq.send('orders', '{}', '{\"a\": 1}')")
    session.execute("select pgmq.send('orders', '{}', headers => '{\"a\": 1}')")


def test_w22_enqueued_at_is_when_it_was_sent(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    with session.transaction():
        session.execute("select pgmq.send('orders', '1')")
        is_clock = one(session, "select enqueued_at > now() from pgmq.q_orders")
    assert is_clock is not system.is_upstream


@pytest.mark.parametrize("take", ["read('orders', 100, 10)", "pop('orders', 10)"])
def test_w22_messages_come_in_order_whatever_the_plan(take: str, system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute(
        "select count(*) from pgmq.send_batch("
        "'orders', array(select to_jsonb(n) from generate_series(1, 10) n))"
    )
    # What was touched last lies last; the planner may choose to fetch in this order.
    session.execute("select pgmq.set_vt('orders', array[1, 2, 5], 0)")
    session.execute("set enable_nestloop = off")
    session.execute("set enable_mergejoin = off")
    ids = column(session, f"select msg_id from pgmq.{take}")
    assert sorted(ids) == list(range(1, 11))
    assert (ids == sorted(ids)) is not system.is_upstream
