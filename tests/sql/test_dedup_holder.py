"""Ids of which one message is pending: until it is settled, or until it is started."""

import json
from typing import Any

import pytest
from tests.sql.queue import Queue, kill, sqlstate_of

# Each ends message 1, which is leased for those that settle, and frees its id.
ENDS = {
    "delete": "select pgmq.delete('orders', 1)",
    "archive": "select pgmq.archive('orders', 1)",
    "pop": "select pgmq.pop('orders')",
    "purge": "select pgmq.purge_queue('orders')",
    "cancel": "select spanmq.cancel('orders', '{1}')",
    "ack": "select spanmq.ack('orders', lease_id, '{1}') from spanmq.receive('orders')",
    "reject": "select spanmq.reject('orders', lease_id, '{1}') from spanmq.receive('orders')",
    "expire": "update spanmq_core.expiry set expires_at = now() - interval '1 second'",
    "view": "delete from pgmq.q_orders",
}
# None of these do.
STAYS = (
    "select pgmq.read('orders', 0, 1)",
    "select spanmq.nack('orders', lease_id, '{1}', retry_in => 60) from spanmq.receive('orders')",
    "select pgmq.set_vt('orders', 1, 600)",
    "select spanmq.receive('orders', lease => 60)",
)


def send(queue: Queue, *ids: str | None, until: str = "settled", **options: Any) -> list[int]:
    """Send messages whose bodies are their places, with these ids."""
    given = {"delay": 0, "on_duplicate": "keep", "expires_in": None, "headers": None} | options
    bodies = [json.dumps(place) for place in range(len(ids))]
    return [
        row[0]
        for row in queue.rows(
            "select spanmq.send_messages('orders', %s::jsonb[], %s::jsonb[], %s, expires_in => %s,"
            " dedup_ids => %s::text[], dedup_until => %s, on_duplicate => %s)",
            bodies,
            given["headers"],
            given["delay"],
            given["expires_in"],
            list(ids),
            until,
            given["on_duplicate"],
        )
    ]


def pending(queue: Queue) -> list[int]:
    return sorted(row[0] for row in queue.rows("select msg_id from spanmq_core.unsettled"))


def maintain(queue: Queue) -> None:
    while queue.rows("select * from spanmq.maintain(100)"):
        pass


@pytest.mark.parametrize("end", ENDS)
def test_id_is_held_until_the_message_ends(orders: Queue, end: str) -> None:
    assert send(orders, "a", "b", None, "a", expires_in=600) == [1, 2, 3, 1]
    assert orders.rows("select headers->>'x-spanmq-dedup-id' from pgmq.q_orders order by msg_id") == [
        ("a",),
        ("b",),
        (None,),
    ]
    assert send(orders, "c", "a", expires_in=600) == [4, 1]
    orders.rows(ENDS[end])
    if end == "expire":
        maintain(orders)
    assert send(orders, "a", "a") == [5, 5]
    assert 1 not in pending(orders)


def test_id_is_held_whatever_the_delay_and_the_attempts(orders: Queue) -> None:
    assert send(orders, "a", delay=0) == send(orders, "a") == [1]
    for act in STAYS:
        orders.rows(act)
        assert send(orders, "a") == [1]
    assert send(orders, "b", delay=600) == send(orders, "b") == [2]


def test_id_is_held_until_the_message_is_started(orders: Queue) -> None:
    assert send(orders, "a", "b", until="started", delay=600) == [1, 2]
    assert send(orders, "b", "a", until="started") == [2, 1]
    orders.rows("select pgmq.set_vt('orders', 1, 0)")
    assert send(orders, "a", until="started") == [1]
    orders.rows("select spanmq.nack('orders', lease_id, '{1}') from spanmq.receive('orders')")
    # It waits for another attempt, and has been started.
    assert send(orders, "a", until="started") == [3]
    assert send(orders, "a", until="settled") == send(orders, "a", until="started") == [3]
    # The id stands for the message that was sent last with it.
    orders.rows("select pgmq.delete('orders', 3)")
    assert send(orders, "a", until="settled") == [4]


def test_message_that_is_replaced_is_cancelled(orders: Queue) -> None:
    assert send(orders, "a", "b", "c", "b", on_duplicate="replace", delay=600) == [1, 3, 2, 3]
    assert orders.rows("select message from pgmq.q_orders where msg_id = 3") == [(3,)]
    orders.rows("select spanmq.receive('orders') from pgmq.set_vt('orders', 2, 0)")
    assert send(orders, "c", "d", "a", on_duplicate="replace") == [4, 5, 6]
    assert pending(orders) == [2, 3, 4, 5, 6]
    states = orders.rows("select spanmq.state('orders', i) from generate_series(1, 2) i")
    assert states == [("cancelled",), ("processing",)]
    # The one that was leased ends when its handler has.
    assert orders.rows("select is_cancelled from spanmq_core.expiry where msg_id = 2") == [(True,)]
    assert send(orders, "a", "c") == [6, 4]


def test_duplicate_is_an_error_for_the_sender_who_asks_for_it(orders: Queue) -> None:
    assert send(orders, "a", "b", on_duplicate="raise") == [1, 2]
    for ids in (("c", "b"), ("c", "c")):
        refused = sqlstate_of(orders.connection, lambda ids=ids: send(orders, *ids, on_duplicate="raise"))  # type: ignore[misc]
        assert refused == "MQ066"
    assert pending(orders) == [1, 2]


@pytest.mark.parametrize("is_dry", [True, False])
def test_dead_letter_is_not_redriven_beside_another_message_with_its_id(
    orders: Queue, *, is_dry: bool
) -> None:
    for _ in range(2):
        [died] = send(orders, "a", None)[:1]
        kill(orders.connection, [died])
    assert send(orders, "b", "c") == [5, 6]
    kill(orders.connection, [5, 6])
    assert send(orders, "b", "z") == [7, 8]
    redrive = (
        "select msg_id, beside, (visible_at - min(visible_at) over ()) = make_interval(secs => 10 * (n - 1))"
        " from (select r.*, count(visible_at) over (order by msg_id) as n from spanmq.redrive("
        "'orders', rate => 0.1, delay => 0, dry_run => %s) r) r order by msg_id"
    )
    expected = [(1, None, True), (3, 1, None), (5, 7, None), (6, None, True)]
    assert orders.rows(redrive, is_dry) == expected
    assert pending(orders) == sorted([2, 4, 7, 8, *([] if is_dry else [1, 6])])
    if is_dry:
        return
    # What came back holds its id again.
    assert send(orders, "a", "b", "c") == [1, 7, 6]
    assert sqlstate_of(orders.connection, "select spanmq.redrive_message('orders', 5)") == "MQ066"
    orders.rows("select pgmq.delete('orders', 7)")
    assert orders.value("select spanmq.redrive_message('orders', 5, delay => 0)") == 5
    assert send(orders, "b") == [5]
    # Without its id it is a message like any other.
    assert orders.value("select spanmq.redrive_message('orders', 3, headers => 'null')") == 3
    assert send(orders, "a") == [1]


def test_subscription_redrives_each_of_its_messages(orders: Queue) -> None:
    orders.rows("select spanmq.create_subscription('mails', 'orders')")
    for _ in range(2):
        send(orders, "a")
        orders.rows("select pgmq.pop('orders')")
    kill(orders.connection, [1, 2], queue="mails")
    assert orders.rows("select msg_id, beside from spanmq.redrive('mails')") == [(1, None), (2, None)]


def test_ids_of_messages_that_left_are_forgotten(orders: Queue) -> None:
    look = "update spanmq_core.dedup_holder set look_at = clock_timestamp()"
    send(orders, "a", "b", "c", "d")
    send(orders, "e", delay=1e7)
    orders.rows("select pgmq.delete('orders', array[1, 3])")
    maintain(orders)
    assert orders.value("select count(*) from spanmq_core.dedup_holder") == 5
    orders.rows(look)
    forget = "select spanmq_core.forget_holders(queue_id, %s) from spanmq_core.queue where name = 'orders'"
    # One at a time, what is still there is not deleted.
    assert [orders.value(forget, 1) for _ in range(3)] == [1, 1, 0]
    orders.rows("select pgmq.delete('orders', 4)")
    orders.rows(look)
    forgotten = "select detail from spanmq.maintain(100) where action = 'forgot deduplication ids'"
    assert orders.rows(forgotten) == [("1",)]
    # Messages that are still there are looked for again, those that come late at least once a day.
    kept = "select dedup_id, round(extract(epoch from look_at - now()) / 3600)::int from spanmq_core.dedup_holder"
    assert sorted(orders.rows(kept)) == [("b", 1), ("e", 24)]
    orders.rows("select pgmq.purge_queue('orders')")
    assert send(orders, "b") == [6]
    orders.rows(look)
    maintain(orders)
    assert orders.rows("select dedup_id from spanmq_core.dedup_holder") == [("b",)]


def test_ids_are_apart_by_queue_and_from_those_that_stand_for_a_time(orders: Queue) -> None:
    orders.rows("select pgmq.create('invoices')")
    send(orders, "a")
    again = "select spanmq.send_messages(%s, '{1}', dedup_ids => '{a}'%s)"
    orders.rows(again % ("'invoices'", ", dedup_until => 'settled'"))
    orders.rows(again % ("'orders'", ""))
    assert pending(orders) == [1, 1, 2]


def test_message_that_is_hidden_for_good_keeps_its_id_and_stops_no_maintenance(orders: Queue) -> None:
    assert send(orders, "a") == [1]
    orders.rows("select pgmq.set_vt('orders', 1, timestamptz '294276-12-31 23:59:59+00')")
    orders.rows("update spanmq_core.dedup_holder set look_at = now()")
    maintain(orders)
    assert orders.rows("select trouble from spanmq_core.upkeep where trouble is not null") == []
    assert orders.value(
        "select look_at between now() and now() + interval '2 days' from spanmq_core.dedup_holder"
    )
    assert send(orders, "a") == [1]
