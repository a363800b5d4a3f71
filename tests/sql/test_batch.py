"""Batches: when they end, with which counts, and that they end once."""

from typing import Any

import pytest
from tests.sql.queue import Queue, sqlstate_of

ENDED = "select headers->'x-spanmq-batch' from pgmq.pop('ends')"
COUNTS = "select total, unsettled, done, dead, ended_at is null from spanmq.list_batches() limit 1"


@pytest.fixture
def orders(orders: Queue) -> Queue:
    orders.rows("select pgmq.create('ends')")
    return orders


def batch(orders: Queue, ids: list[int], queue: str = "orders") -> int:
    created: int = orders.value("""select spanmq.create_batch('ends', '{"a": 1}', '{"b": 2}')""")
    orders.rows("select spanmq.add_to_batch(%s, %s, %s::bigint[])", queue, created, ids)
    return created


def ended(orders: Queue) -> Any:
    """Return the counts of the batch that has just ended, without its id."""
    found = orders.value(ENDED)
    return found and {name: found[name] for name in ("total", "done", "dead")}


# Calls with queue, lease and ids; how many messages are done and dead then; whether maintain() must notice.
WAYS = {
    "select spanmq.ack('orders', %(lease)s, %(ids)s)": (1, 0, False),
    "select pgmq.delete('orders', %(ids)s::bigint[])": (1, 0, True),
    "select pgmq.delete('orders', i) from unnest(%(ids)s::bigint[]) i": (1, 0, True),
    "delete from pgmq.q_orders where msg_id = any (%(ids)s)": (1, 0, True),
    "select pgmq.archive('orders', %(ids)s::bigint[])": (1, 0, True),
    "select spanmq.reject('orders', %(lease)s, %(ids)s, category => 'PERMANENT')": (0, 1, False),
    "select spanmq.reject('orders', %(lease)s, array[i], category => 'PERMANENT') from unnest(%(ids)s::bigint[]) i": (
        0,
        1,
        False,
    ),
    "select spanmq.nack('orders', %(lease)s, %(ids)s, category => 'BUSINESS')": (0, 1, False),
    "select spanmq.release('orders', %(lease)s, %(ids)s), spanmq.cancel('orders', %(ids)s)": (1, 0, True),
    "select spanmq.release('orders', %(lease)s, %(ids)s), pgmq.pop('orders', 100)": (1, 0, True),
    "select pgmq.purge_queue('orders')": (1, 0, True),
    "select pgmq.drop_queue('orders')": (1, 0, True),
}


def test_doctor_tells_of_a_batch_whose_message_cannot_be_sent(orders: Queue) -> None:
    [first, second] = orders.send(2)
    stuck, _ = batch(orders, [first]), batch(orders, [second])
    orders.rows("select spanmq.set_schema('ends', '{\"type\": \"string\"}', checked => true)")
    orders.rows("update spanmq_core.batch set created_at = created_at - interval '6 minutes'")
    finding = "select finding from spanmq.doctor() where check_name = 'maintenance' and level = 'warning'"
    assert orders.rows(finding) == []
    orders.rows("select pgmq.delete('orders', %s::bigint)", first)
    orders.rows("select * from spanmq.maintain()")
    assert orders.rows(finding) == [(f"batches are settled and not ended: {stuck} of queue ends",)]
    orders.rows("select spanmq.set_schema('ends', null), spanmq.maintain()")
    assert orders.rows(finding) == []


@pytest.mark.parametrize("n", [1, 20])
@pytest.mark.parametrize("way", WAYS)
def test_batch_ends_when_its_messages_are_settled(orders: Queue, way: str, n: int) -> None:
    done, dead, is_late = WAYS[way]
    ids = orders.send(n)
    batch(orders, [*ids, *ids])
    lease, received = orders.receive()
    assert received == ids
    assert orders.rows(COUNTS) == [(n, n, None, None, True)]
    orders.connection.execute(way.encode(), {"lease": lease, "ids": ids})
    if is_late:
        assert ended(orders) is None
        orders.rows("select spanmq.maintain()")
    assert ended(orders) == {"total": n, "done": n * done, "dead": n * dead}
    assert orders.rows(COUNTS) == [(n, 0, n * done, n * dead, False)]
    orders.rows("select spanmq.maintain(100)")
    assert ended(orders) is None


def test_batch_waits_for_each_of_its_messages(orders: Queue) -> None:
    orders.rows("select pgmq.create('mail')")
    (mailed,) = orders.rows("select pgmq.send('mail', '1', 3600)")[0]
    others, ids = orders.send(300), orders.send(20)
    created = batch(orders, ids)
    orders.rows("select spanmq.add_to_batch('mail', %s, array[%s]::bigint[])", created, mailed)
    lease, _ = orders.receive(320)
    orders.settle("ack", lease, others)
    orders.settle("ack", lease, ids[:19])
    assert orders.settle("nack", lease, ids[19:], "no", "TRANSIENT", 0.0) == {ids[19]: "retrying"}
    assert orders.value(COUNTS.replace("total, ", "")) == 2
    lease, _ = orders.receive()
    orders.settle("reject", lease, ids[19:])
    orders.rows("select spanmq.maintain(100)")
    assert ended(orders) is None
    orders.rows("select pgmq.delete('mail', %s::bigint), spanmq.maintain(100)", mailed)
    assert ended(orders) == {"total": 21, "done": 20, "dead": 1}


def test_dead_letter_that_is_redriven_before_the_end_is_waited_for(orders: Queue) -> None:
    ids = orders.send(2)
    batch(orders, ids)
    lease, _ = orders.receive()
    orders.settle("reject", lease, ids[:1])
    orders.rows("select spanmq.redrive('orders', delay => 0)")
    orders.settle("ack", lease, ids[1:])
    assert ended(orders) is None
    orders.rows("select pgmq.delete('orders', %s::bigint), spanmq.maintain(100)", ids[0])
    assert ended(orders) == {"total": 2, "done": 2, "dead": 0}


def test_redrive_after_the_end_does_not_end_it_again(orders: Queue) -> None:
    ids = orders.send(1)
    batch(orders, ids)
    orders.settle("reject", orders.receive()[0], ids)
    orders.rows("select spanmq.maintain(100)")
    assert ended(orders) == {"total": 1, "done": 0, "dead": 1}
    orders.rows("select spanmq.redrive('orders', delay => 0)")
    orders.rows("select pgmq.delete('orders', %s::bigint)", ids[0])
    orders.rows("select spanmq.maintain(100)")
    assert ended(orders) is None


def test_message_that_expires_counts_as_dead(orders: Queue) -> None:
    (sent,) = orders.rows("select spanmq.send_messages('orders', array['1']::jsonb[], expires_in => 1e-6)")
    batch(orders, [*sent])
    for _ in range(2):
        orders.rows("select spanmq.receive('orders'), spanmq.maintain(100)")
    assert ended(orders) == {"total": 1, "done": 0, "dead": 1}


def test_full_queue_delays_the_end_and_no_settlement(orders: Queue) -> None:
    orders.rows("""select spanmq.set_policy('ends', '{"max_backlog": 1}'), pgmq.send('ends', '1')""")
    ids = orders.send(1)
    batch(orders, ids)
    assert orders.settle("ack", orders.receive()[0], ids) == {ids[0]: "acked"}
    orders.rows("select spanmq.maintain(100)")
    orders.rows("""select spanmq.set_policy('ends', '{"max_backlog": null}')""")
    orders.rows("select spanmq.maintain(100)")
    messages = orders.rows("select message, headers->'b' from pgmq.read('ends', 0, 9)")
    assert messages == [(1, None), ({"a": 1}, 2)]


def test_many_open_batches_all_end(orders: Queue) -> None:
    waiting = orders.send(1)
    for _ in range(120):
        batch(orders, waiting)
    for _ in range(120):
        batch(orders, [])
    while orders.value("select count(*) from pgmq.metrics('ends') where queue_length < 120"):
        orders.rows("select spanmq.maintain(100)")
    orders.settle("ack", orders.receive()[0], waiting)
    # A settlement ends a few: what others have made of its message costs it no more.
    assert orders.value("select queue_length from pgmq.metrics('ends')") == 140
    while orders.rows("select from spanmq.maintain(100)"):
        pass
    assert orders.value("select queue_length from pgmq.metrics('ends')") == 240


def test_queue_is_watched_as_long_as_it_has_batches(orders: Queue) -> None:
    watched = "select is_watched from spanmq_core.queue where name = 'orders'"
    ids = orders.send(1)
    batch(orders, ids)
    assert orders.value(watched) is True
    orders.settle("ack", orders.receive()[0], ids)
    orders.rows("select spanmq.maintain()")
    assert orders.value(watched) is False
    orders.rows("update spanmq_core.batch set ended_at = now() - interval '8 days'")
    orders.rows("select spanmq.maintain()")
    assert orders.rows("select * from spanmq.list_batches()") == []


def test_batch_that_has_ended_takes_no_more_messages(orders: Queue) -> None:
    [first, second] = orders.send(2)
    created = batch(orders, [first])
    orders.rows("select pgmq.delete('orders', %s::bigint), spanmq.maintain(100)", first)
    assert ended(orders) == {"total": 1, "done": 1, "dead": 0}
    add = f"select spanmq.add_to_batch('orders', {created}, array[{second}]::bigint[])"
    assert sqlstate_of(orders.connection, add) == "MQ002"
