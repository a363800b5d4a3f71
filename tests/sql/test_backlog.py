"""max_backlog: a queue that holds so many messages takes no more, and says so."""

import json

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Queue, sqlstate_of
from tests.sql.race.sessions import Race

ONE = "send('orders', '1')"
THREE = "send_batch('orders', array['1', '2', '3']::jsonb[])"
SENDS = [
    ONE,
    "send('orders', '1', '{}'::jsonb)",
    "send('orders', '1', 5)",
    THREE,
    "send_messages('orders', array['1'::jsonb])",
    "send_messages('orders', array['1'::jsonb], dedup_ids => array['a'])",
    "send_topic('a.b', '1')",
    "copy_begin('orders', 1)",
    "bulk_reserve('orders', 'w', 1, 1)",
]


def limit(orders: Queue, n: int | None) -> None:
    orders.policy(json.dumps({"max_backlog": n}))


def refused(orders: Queue, call: str) -> psycopg.Error:
    with pytest.raises(psycopg.Error) as raised, orders.connection.transaction():
        orders.rows(f"select * from {qualified(call)}")
    assert raised.value.sqlstate == "MQ062", raised.value
    return raised.value


def forget_that_it_was_full(orders: Queue) -> None:
    orders.rows("select setval(room, 0) from spanmq_core.queue where pg_sequence_last_value(room) < 0")


@pytest.mark.parametrize("call", SENDS)
def test_full_queue_takes_no_more_whatever_the_way(orders: Queue, call: str) -> None:
    orders.rows("select pgmq.bind_topic('a.b', 'orders')")
    limit(orders, 5)
    ids = orders.send(5)
    error = refused(orders, call)
    assert "orders is full" in str(error)
    assert orders.left() == ids


def test_ids_are_not_drawn_for_what_is_refused(orders: Queue) -> None:
    limit(orders, 2)
    orders.send(2)
    before = orders.value("select pg_sequence_last_value(ids) from spanmq_core.queue")
    for call in SENDS[:6]:
        refused(orders, call)
    assert orders.value("select pg_sequence_last_value(ids) from spanmq_core.queue") == before


def test_batch_is_refused_as_a_whole_and_smaller_ones_still_go(orders: Queue) -> None:
    limit(orders, 5)
    orders.send(3)
    refused(orders, THREE)
    orders.send(2)
    refused(orders, ONE)


def test_what_is_settled_makes_room(orders: Queue) -> None:
    limit(orders, 3)
    orders.send(3)
    lease, ids = orders.receive(3)
    refused(orders, ONE)  # what is leased is there
    orders.settle("ack", lease, ids[:2])
    forget_that_it_was_full(orders)
    orders.send(2)
    refused(orders, ONE)


def test_message_that_left_its_lease_by_itself_is_not_counted(orders: Queue) -> None:
    limit(orders, 40)
    orders.send(40)
    orders.rows("select * from spanmq.receive('orders', 40)")
    orders.rows("select pgmq.delete('orders', 3::bigint), pgmq.delete('orders', 9::bigint)")
    backlog = "select (spanmq_core.survey(q.queue_id, clock_timestamp())).backlog from spanmq_core.queue q"
    assert orders.value(backlog) == 38
    orders.send(2)
    refused(orders, ONE)


def test_queue_that_was_full_is_believed_so_for_a_moment_only(orders: Queue) -> None:
    limit(orders, 1)
    (only,) = orders.send(1)
    clock = "select (extract(epoch from clock_timestamp()) * 1000)::float8"
    before = orders.value(clock)
    refused(orders, ONE)
    until = orders.value("select -pg_sequence_last_value(room) from spanmq_core.queue")
    assert before < until < orders.value(clock) + 5001
    orders.rows("select pgmq.delete('orders', %s::bigint)", only)
    orders.rows("select setval(room, -1) from spanmq_core.queue")  # long ago
    orders.send(1)
    # A clock that was set back: what is said of a far future is not believed.
    orders.rows("select setval(room, -99999999999999) from spanmq_core.queue")
    orders.rows("select pgmq.purge_queue('orders')")
    orders.send(1)


def test_counting_is_seldom(orders: Queue) -> None:
    limit(orders, 128_000)
    orders.send(100)
    last = "select pg_sequence_last_value({}) from spanmq_core.queue"
    room = orders.value(last.format("room"))
    assert room == 128_000
    for _ in range(30):
        orders.send(1)
    assert orders.value(last.format("room")) == room, "nobody counted"


def test_more_than_a_128th_too_many_never_wait(orders: Queue) -> None:
    limit(orders, 1280)
    for _ in range(1280):
        orders.send(1)
    sent = "select count(*) from pgmq.q_orders"

    def send_more() -> None:
        for _ in range(100):
            with orders.connection.transaction():
                orders.send(1)

    with pytest.raises(psycopg.Error):
        send_more()
    assert 1280 <= orders.value(sent) <= 1290


def test_limit_may_change_and_go(orders: Queue) -> None:
    limit(orders, 2)
    orders.send(2)
    refused(orders, ONE)
    limit(orders, 3)
    orders.send(1)
    refused(orders, ONE)
    limit(orders, None)
    orders.send(50)
    limit(orders, 10)
    refused(orders, ONE)
    assert orders.value("select pgmq.drop_queue('orders')")
    assert orders.rows("select from pg_class where relname ~ '^room_'") == []


def test_what_comes_back_is_not_refused(orders: Queue) -> None:
    limit(orders, 3)
    orders.send(3)
    lease, ids = orders.receive(3)
    assert orders.settle("reject", lease, ids[:1]) == {ids[0]: "dead"}
    orders.settle("nack", lease, ids[1:], "x", None, 0)
    forget_that_it_was_full(orders)
    orders.send(1)
    refused(orders, ONE)
    assert len(orders.rows("select * from spanmq.redrive('orders')")) == 1
    assert len(orders.left()) == 4


def test_schedule_waits_for_room(orders: Queue) -> None:
    limit(orders, 1)
    (only,) = orders.send(1)
    orders.rows("select spanmq.schedule('tick', 'orders', '* * * * *', '{}')")
    orders.rows(
        "insert into spanmq_core.schedule_time (schedule_id, due_at)"
        " select schedule_id, clock_timestamp() - interval '1 s' from spanmq_core.schedule"
    )
    orders.rows("select * from spanmq_core.fire_schedules(10)")
    assert orders.left() == [only]
    orders.rows("select pgmq.delete('orders', %s::bigint)", only)
    forget_that_it_was_full(orders)
    orders.rows("select * from spanmq_core.fire_schedules(10)")
    assert len(orders.left()) == 1


def test_subscription_has_no_limit(orders: Queue) -> None:
    orders.rows("select spanmq.create_subscription('audit', 'orders')")
    limit(orders, 5)
    orders.send(5)
    refused(orders, ONE)


def test_senders_wait_for_nobody_and_go_beyond_by_what_is_under_way_only(race: Race) -> None:
    race.main.rows("select spanmq.set_policy(%s, '{\"max_backlog\": 3}')", race.queue)
    one, two = race.begun(), race.open()
    one.rows("select pgmq.send_batch(%s, array['1', '2']::jsonb[])", race.queue)
    # Nobody counts: there was room for three, and the ids say how far that went.
    two.rows("select pgmq.send(%s, '3')", race.queue)
    one.commit()
    for session in (one, two):
        assert sqlstate_of(session.connection, "select pgmq.send('jobs', '4')") == "MQ062"
    assert len(race.left()) == 3
