"""Signals: what waits is sent once, with the signal or when its time is over; a signal that comes first is kept."""

from tests.sql.queue import Queue, sqlstate_of

WAIT = "select spanmq.wait_for_signal('orders', %s, '{\"a\": 1}', %s, '{\"b\": 2}')"
SIGNAL = "select spanmq.signal('orders', %s, %s::jsonb)"
SENT = "select message, headers from pgmq.pop('orders', 100)"
MAINTAIN = "select * from spanmq.maintain(1) where action = 'ended wait'"
LISTED = "select name, is_wait from spanmq.list_signals('orders')"


def late(orders: Queue) -> None:
    orders.rows("update spanmq_core.signal set until = clock_timestamp()")


def test_wait_ends_with_the_signal_and_the_signal_with_the_wait(orders: Queue) -> None:
    message = {"a": 1}
    assert orders.value(WAIT, "x", 60) is None
    assert orders.value(WAIT, "y", 60) is None
    assert (orders.rows(SENT), orders.rows(LISTED)) == ([], [("x", True), ("y", True)])
    assert orders.value(SIGNAL, "x", '{"by": "ann"}') == "released"
    headers = {"b": 2, "x-spanmq-signal": {"name": "x", "body": {"by": "ann"}}}
    assert orders.rows(SENT) == [(message, headers)]
    # None waits: it is kept for the next one, and the last one counts.
    assert [orders.value(SIGNAL, "x", each) for each in ("1", "2")] == ["kept", "replaced"]
    assert orders.rows(LISTED) == [("x", False), ("y", True)]
    assert orders.value(WAIT, "x", 60) is not None
    headers["x-spanmq-signal"] = {"name": "x", "body": 2}
    assert orders.rows(SENT) == [(message, headers)]
    assert orders.rows(LISTED) == [("y", True)]
    assert sqlstate_of(orders.connection, WAIT.replace("%s", "'y'", 1).replace("%s", "60")) == "MQ067"
    assert orders.rows("select name from spanmq.list_signals('orders', 'x', 1)") == [("y",)]
    assert orders.rows("select name from spanmq.list_signals('orders', 'y')") == []


def test_wait_whose_time_is_over_is_sent_once_and_a_late_signal_is_forgotten(orders: Queue) -> None:
    orders.value(WAIT, "x", 60)
    orders.rows(MAINTAIN)
    assert orders.rows(SENT) == []
    late(orders)
    assert orders.rows(MAINTAIN) == [("ended wait", "orders", "x")]
    assert orders.value("select headers->'x-spanmq-signal' from pgmq.pop('orders')") == {
        "name": "x",
        "timed_out": True,
    }
    assert orders.value(SIGNAL, "x", "1") == "kept"
    late(orders)
    assert orders.rows(LISTED) == [], "it counts no longer, whether maintenance has been there or not"
    assert orders.value(SIGNAL, "x", "2") == "kept"
    late(orders)
    assert orders.value(WAIT, "x", 60) is None
    late(orders)
    assert orders.value(SIGNAL, "x", "3") == "released", "a signal comes in time until the message is sent"
    orders.value(SIGNAL, "x", "4")
    late(orders)
    orders.rows(MAINTAIN)
    assert orders.value("select count(*) from spanmq_core.signal") == 0


def test_wait_can_be_ended_before_its_time(orders: Queue) -> None:
    end = "select spanmq.signal('orders', 'x', timed_out => true)"
    assert orders.value(end) == "unknown"
    orders.value(SIGNAL, "x", "1")
    assert orders.value(end) == "unknown", "a kept signal is no wait"
    orders.value(WAIT, "x", 60)
    orders.rows(SENT)
    orders.value(WAIT, "x", 60)
    assert orders.value(end) == "released"
    headers = {"b": 2, "x-spanmq-signal": {"name": "x", "timed_out": True}}
    assert (orders.rows(SENT), orders.rows(LISTED)) == ([({"a": 1}, headers)], [])


def test_message_that_cannot_be_sent_holds_up_no_other(orders: Queue) -> None:
    orders.rows("select pgmq.create('full'), spanmq.set_policy('full', '{\"max_backlog\": 1}')")
    orders.rows("select pgmq.send('full', '1')")
    orders.rows("select spanmq.wait_for_signal('full', 'x', '2', 60)")
    orders.value(WAIT, "y", 60)
    assert sqlstate_of(orders.connection, "select spanmq.signal('full', 'x')") == "MQ062"
    late(orders)
    orders.rows("update spanmq_core.signal set until = until - interval '1 s' where name = 'x'")
    assert orders.rows(MAINTAIN) == []
    assert orders.rows(MAINTAIN) == [("ended wait", "orders", "y")]
    orders.rows("select spanmq.set_policy('full', '{\"max_backlog\": null}')")
    late(orders)
    assert orders.rows(MAINTAIN) == [("ended wait", "full", "x")]
    orders.rows("select spanmq.wait_for_signal('full', 'x', '2', 60), pgmq.drop_queue('full')")
    assert orders.value("select count(*) from spanmq_core.signal") == 0
