"""A receive that leaves room for messages that no receiver has had, and one of the newest of these."""

from typing import Any

import pytest
from tests.sql.queue import Queue

FAIL = "select spanmq.nack('orders', lease_id, array[msg_id], 'down', retry_in => 0) from spanmq.receive('orders', %s)"


def received(orders: Queue, quantity: int, **options: Any) -> list[int]:
    """Receive messages, and return their ids as they came."""
    options = {"retries": None, "newest": False} | options
    found = orders.rows(
        "select msg_id from spanmq.receive('orders', %s, 60, retries => %s, newest => %s)",
        quantity,
        options["retries"],
        options["newest"],
    )
    return [message_id for (message_id,) in found]


@pytest.fixture
def tried(orders: Queue) -> Queue:
    """A queue with ten messages of which a receive failed, and ten behind them that no receiver had."""
    orders.rows("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[20]))")
    orders.rows(FAIL, 10)
    return orders


def test_receive_takes_no_more_than_so_many_retries_while_there_are_others(tried: Queue) -> None:
    assert received(tried, 6, retries=2) == [1, 2, 11, 12, 13, 14]
    assert received(tried, 4, retries=0) == [15, 16, 17, 18]
    # Two are left that no receiver had, and then none.
    assert received(tried, 5, retries=0) == [3, 19, 20]
    assert received(tried, 9, retries=2) == [4, 5, 6]
    assert received(tried, 9) == [7, 8, 9, 10]


def test_half_of_a_receive_is_of_others_even_where_more_retries_have_room(tried: Queue) -> None:
    assert received(tried, 6, retries=100) == [1, 2, 3, 11, 12, 13]
    tried.rows("select setseed(0.5)")
    singles = [received(tried, 1, retries=100)[0] for _ in range(8)]
    assert {number > 10 for number in singles} == {True, False}


def test_without_it_the_lowest_ids_come(tried: Queue) -> None:
    assert received(tried, 12) == [*range(1, 13)]


def test_newest_are_those_that_no_receiver_had_and_else_one_other(tried: Queue) -> None:
    assert received(tried, 3, newest=True) == [18, 19, 20]
    assert received(tried, 100, newest=True) == [*range(11, 18)]
    assert received(tried, 100, newest=True) == [1]


def test_released_and_delayed_messages_count_as_new(tried: Queue) -> None:
    tried.rows(
        "with taken as materialized (select lease_id, array_agg(msg_id) as ids from spanmq.receive('orders', 20)"
        " group by lease_id) select spanmq.release('orders', lease_id, ids) from taken"
    )
    assert received(tried, 4, newest=True) == [17, 18, 19, 20]
    assert received(tried, 4, retries=0) == [11, 12, 13, 14]


@pytest.mark.parametrize("policy", ['{"max_attempts": 0}', '{"max_in_flight": 100}', '{"rate_limit": 1000}'])
def test_it_holds_under_limits(tried: Queue, policy: str) -> None:
    tried.rows("select spanmq.set_policy('orders', %s)", policy)
    assert received(tried, 6, retries=2) == [1, 2, 11, 12, 13, 14]
    assert received(tried, 2, newest=True) == [19, 20]


def test_priorities_come_before_retries(orders: Queue) -> None:
    orders.rows("select spanmq.send_messages('orders', '{1,1}', priority => 5)")
    orders.rows(FAIL, 2)
    orders.rows("select pgmq.send_batch('orders', '{1,1}')")
    assert received(orders, 2, retries=0) == [1, 2]


def test_ordered_groups_keep_their_order(orders: Queue) -> None:
    orders.rows("""select spanmq.set_policy('orders', '{"ordered": true}')""")
    for group in "aab":
        orders.rows("select pgmq.send('orders', '1', jsonb_build_object('x-pgmq-group', %s::text))", group)
    orders.rows(FAIL, 1)
    assert received(orders, 3, retries=0) == [1, 2, 3]
    orders.rows("select pgmq.set_vt('orders', m, 0) from generate_series(1, 3) m")
    assert received(orders, 3, newest=True)[0] == 1
