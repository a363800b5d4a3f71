"""Cancelling messages that a receiver holds."""

import pytest
from tests.sql.queue import Queue, expire_leases

CANCEL = "select * from spanmq.cancel('orders', %s)"


def lease(orders: Queue, n: int = 1) -> tuple[int, list[int]]:
    found = orders.rows("select lease_id, msg_id from spanmq.receive('orders', %s, 60)", n)
    return found[0][0], [msg_id for _, msg_id in found]


@pytest.mark.parametrize("end", ["nack", "release", "reject"])
def test_cancelled_message_ends_when_its_receiver_returns_it(orders: Queue, end: str) -> None:
    orders.rows("select pgmq.send_batch('orders', '{1,2}')")
    lease_id, (first, second) = lease(orders, 2)
    assert orders.rows(CANCEL, [first]) == [(first, "cancelling")]
    assert orders.rows(CANCEL, [first]) == [(first, "cancelling")], "again changes nothing"
    assert orders.statuses([first, second]) == ["processing", "processing"]
    settled = orders.rows(f"select * from spanmq.{end}('orders', %s, %s)", lease_id, [first, second])
    assert settled[0] == (first, "stale")
    assert settled[1][1] != "stale"
    assert orders.statuses([first]) == ["cancelled"]
    assert orders.rows("select msg_id from spanmq.dead_letters('orders') where msg_id = %s", first) == []
    assert orders.rows("select msg_id from spanmq.receive('orders', 10) where msg_id = %s", first) == []
    assert orders.rows(CANCEL, [first]) == [(first, "unknown")]


def test_ack_that_comes_before_counts(orders: Queue) -> None:
    orders.rows("select pgmq.send('orders', '1')")
    lease_id, ids = lease(orders)
    orders.rows(CANCEL, ids)
    assert orders.rows("select * from spanmq.ack('orders', %s, %s)", lease_id, ids) == [(ids[0], "acked")]
    assert orders.statuses(ids) == ["completed"]
    orders.rows("select spanmq.maintain()")
    assert orders.rows("select count(*) from spanmq_core.expiry") == [(0,)]


@pytest.mark.parametrize("by", ["receive", "maintain"])
def test_cancelled_message_ends_with_its_lease(orders: Queue, by: str) -> None:
    orders.rows("select pgmq.send_batch('orders', '{1,2}')")
    _, ids = lease(orders, 2)
    orders.rows(CANCEL, ids[:1])
    expire_leases(orders.connection)
    if by == "maintain":
        orders.rows("select spanmq.maintain()")
    else:
        assert orders.rows("select msg_id from spanmq.receive('orders', 10)") == [(ids[1],)]
    assert orders.statuses(ids[:1]) == ["cancelled"]
    assert orders.rows("select count(*) from spanmq_core.dead_letter") == [(0,)]


def test_group_waits_until_the_handler_of_a_cancelled_message_has_ended(orders: Queue) -> None:
    orders.rows("select spanmq.set_policy('orders', '{\"ordered\": true}')")
    orders.rows(
        "select pgmq.send_batch('orders', '{1,2}', array_fill('{\"x-pgmq-group\": \"a\"}'::jsonb, '{2}'))"
    )
    lease_id, [first] = lease(orders)
    orders.rows(CANCEL, [first])
    assert orders.rows("select msg_id from spanmq.receive('orders', 1)") == []
    orders.rows("select * from spanmq.release('orders', %s, %s)", lease_id, [first])
    assert orders.rows("select msg_id from spanmq.receive('orders', 1)") == [(first + 1,)]


def test_holder_learns_which_of_its_messages_are_gone(orders: Queue) -> None:
    orders.rows("select pgmq.send_batch('orders', '{1,2,3}')")
    lease_id, ids = lease(orders, 3)
    asked = "select msg_id, is_taken from spanmq.cancelled('orders', %s, %s)"
    assert orders.rows(asked, lease_id, ids) == []
    orders.rows(CANCEL, ids[:1])
    orders.rows("select pgmq.set_vt('orders', %s, 600)", ids[1])
    orders.rows("select pgmq.delete('orders', %s::bigint)", ids[2])
    assert orders.rows(asked, lease_id, ids) == [(ids[0], False), (ids[1], True), (ids[2], False)]


def test_subscription_does_not_inherit_what_was_cancelled(orders: Queue) -> None:
    orders.rows("select pgmq.send('orders', '1')")
    _, ids = lease(orders)
    orders.rows(CANCEL, ids)
    orders.rows("select spanmq.create_subscription('second', 'orders', waiting => true)")
    assert orders.rows("select msg_id from spanmq.receive('second', 1)") == [(ids[0],)]
