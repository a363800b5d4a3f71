"""Shapes of what was sent for tasks: what senders note, how much of it, and what it says about what may wait."""

import psycopg
from tests.sql.queue import Queue

NOTE = "select spanmq.note_task_shapes('orders', array[%s], array[%s]::jsonb[])"
LISTED = "select task, shape, may_wait from spanmq.list_task_shapes('orders')"
AGE = (
    "update spanmq_core.task_shape set (noted_at, first_at, noted_by)"
    " = (select noted_at - age, first_at - age, '1'::xid8 from (select %s::interval as age) a)"
)


def test_shape_is_noted_once_in_ten_minutes(orders: Queue) -> None:
    orders.rows("select pgmq.send('orders', '1')")
    # Only this transaction has it: if it is rolled back, the next send must note it again.
    assert orders.value(NOTE, "ship", '{"order": "object"}') == 5
    assert orders.value(NOTE, "ship", '{"order": "object"}') == 5
    orders.rows(AGE, "9 minutes")
    assert 0 < orders.value(NOTE, "ship", '{"order": "object"}') <= 60
    assert orders.value("select count(*) from spanmq_core.task_shape") == 1
    orders.rows(AGE, "2 minutes")
    assert orders.value(NOTE, "ship", '{"order": "object"}') == 5
    assert orders.value("select count(*) from spanmq_core.task_shape") == 1
    assert orders.value("select noted_at - first_at > '10 minutes' from spanmq.list_task_shapes('orders')")
    assert orders.rows(LISTED) == [("ship", {"order": "object"}, True)]


def test_shape_does_not_wait_when_all_messages_were_sent_later(orders: Queue) -> None:
    orders.value(NOTE, "ship", "{}")
    assert orders.rows(LISTED) == [("ship", {}, False)]
    orders.rows("select pgmq.send('orders', '1', 3600)")
    assert orders.rows(LISTED) == [("ship", {}, True)]
    orders.rows(AGE, "12 minutes")
    assert orders.rows(LISTED) == [("ship", {}, False)]


def test_role_that_sends_too_many_shapes_leaves_those_of_others(orders: Queue) -> None:
    orders.rows("select pgmq.send('orders', '1')")
    orders.rows(
        "create role spanmq_test_caller; select spanmq.grant_queue('spanmq_test_caller', 'orders', 'send')"
    )
    orders.rows("set local role spanmq_test_caller")
    for number in range(102):
        orders.value(NOTE, "ship", f'{{"a{number}": "null"}}')
    orders.value(NOTE, "x" * 256, "{}")
    orders.value(NOTE, "ship", f'{{"{"x" * 1000}": "null"}}')
    orders.rows("reset role")
    assert orders.value(NOTE, "mail", "{}") == 5
    found = orders.rows(LISTED)
    assert len(found) == 102
    assert [task for task, _, _ in found if task != "ship"] == ["mail", None]
    # No message of these is left: they make room.
    orders.rows(f"{AGE} where role = 'spanmq_test_caller'", "20 minutes")
    orders.rows("set local role spanmq_test_caller")
    orders.value(NOTE, "ship", '{"new": "null"}')
    orders.rows("reset role")
    assert {task for task, _, _ in orders.rows(LISTED)} == {"mail", "ship"}
    assert len(orders.rows(LISTED)) == 2


def test_nobody_waits_for_a_sender_that_noted_the_same_shape(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database, autocommit=True) as other:
        other.execute("select pgmq.create('orders')")
        other.execute("set lock_timeout = '1ms'")
        for _ in range(2):
            one.execute(NOTE.encode(), ["ship", "{}"])
            other.execute(NOTE.encode(), ["ship", "{}"])
            one.commit()
            # Both are the same shape, which each may remove next time.
            assert other.execute(LISTED.encode()).fetchall() == [("ship", {}, False)]
            other.execute(AGE.encode(), ["11 minutes"])
        one.execute(NOTE.encode(), ["ship", "{}"])
        one.rollback()
        assert one.execute(NOTE.encode(), ["ship", "{}"]).fetchone() == (5.0,)
        one.commit()
        assert other.execute(NOTE.encode(), ["ship", "{}"]).fetchone() > (500.0,)  # type: ignore[operator]
        assert other.execute("select count(*) from spanmq_core.task_shape").fetchone() == (1,)
        other.execute("select pgmq.drop_queue('orders')")
        assert other.execute("select count(*) from spanmq_core.task_shape").fetchone() == (0,)


def test_serializable_transaction_notes_nothing(database: str) -> None:
    with psycopg.connect(database) as one:
        one.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        one.execute("select pgmq.create('orders')")
        assert one.execute(NOTE.encode(), ["ship", "{}"]).fetchone() == (60.0,)
        assert one.execute(LISTED.encode()).fetchall() == []
