"""Dead letters: found by every filter, counted, discarded, kept to their retention; and who may do so."""

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.sql.queue import Connection, column, kill


@pytest.fixture
def orders(connection: Connection) -> Connection:
    connection.execute("select pgmq.create('orders')")
    return connection


def send(connection: Connection, bodies: list[Any], headers: Any = None, queue: str = "orders") -> list[int]:
    texts, more = list(map(json.dumps, bodies)), [json.dumps(headers)] * len(bodies)
    return column(connection, "select pgmq.send_batch(%s, %s::jsonb[], %s::jsonb[])", queue, texts, more)


def chosen(connection: Connection, **filters: Any) -> list[int]:
    arguments: dict[str, Any] = {"queue": "orders"} | filters
    call = ", ".join(f"{key} => %({key})s" for key in arguments)
    rows = connection.execute(
        f"select msg_id from spanmq.dead_letters({call})".encode(), arguments
    ).fetchall()
    return [row[0] for row in rows]


def purge(connection: Connection, **filters: Any) -> int:
    arguments: dict[str, Any] = {"queue": "orders"} | filters
    call = ", ".join(f"{key} => %({key})s" for key in arguments)
    [(purged,)] = connection.execute(f"select spanmq.purge_dead_letters({call})".encode(), arguments)
    return int(purged)


def counts(connection: Connection, queue: str | None = "orders") -> dict[str, int]:
    rows = connection.execute("select * from spanmq.count_dead_letters(%s)", [queue]).fetchall()
    return {category: n for _, category, n in rows}


def test_every_filter_chooses(orders: Connection) -> None:
    ids = send(orders, [{"n": n, "kind": "odd" if n % 2 else "even"} for n in range(6)])
    kill(orders, ids[:2], "TRANSIENT", "Read timeout", "TimeoutError")
    kill(orders, ids[2:4], "PERMANENT", "100% wrong", "ValueError")
    kill(orders, ids[4:], "PERMANENT", None, None)
    assert chosen(orders) == ids
    assert chosen(orders, category="PERMANENT") == ids[2:]
    assert chosen(orders, error="TIME.?OUT") == ids[:2]
    assert chosen(orders, error="%") == ids[2:4]
    assert chosen(orders, error_class="ValueError") == ids[2:4]
    assert chosen(orders, error_class="Value") == []
    assert chosen(orders, payload='{"kind": "odd"}') == ids[1::2]
    assert chosen(orders, payload='{"kind": "odd", "n": 3}', category="PERMANENT") == [ids[3]]
    assert chosen(orders, payload='{"kind": "odd"}', category="BUSINESS") == []
    assert chosen(orders, payload="{}") == ids


def test_times_of_death_choose(orders: Connection) -> None:
    ids = send(orders, [1, 2, 3])
    for id_ in ids:
        kill(orders, [id_])
    rows = orders.execute("select dead_at from spanmq.dead_letters('orders')").fetchall()
    [second] = rows[1]
    assert chosen(orders, since=second) == ids[1:]
    assert chosen(orders, until=second) == ids[:1]
    assert chosen(orders, since=second, until=second + timedelta(microseconds=1)) == [ids[1]]


def test_pages_follow_each_other(orders: Connection) -> None:
    ids = send(orders, list(range(10)))
    kill(orders, ids[5:])
    kill(orders, ids[:5])
    seen, after = [], 0
    for _ in range(4):
        page = orders.execute(
            "select dead_letter_id, msg_id from spanmq.dead_letters('orders', after => %s, qty => 3)", [after]
        ).fetchall()
        seen += [id_ for _, id_ in page]
        after = page[-1][0]
    assert seen == ids[5:] + ids[:5]
    assert chosen(orders, after=after) == []
    assert chosen(orders, qty=0) == []


def test_without_a_queue_all_are_shown(orders: Connection) -> None:
    orders.execute("select pgmq.create('other')")
    kill(orders, send(orders, [1]))
    kill(orders, send(orders, [2], queue="other"), queue="other")
    kill(orders, send(orders, [3]), "BUSINESS")
    every = "select queue_name, message from spanmq.dead_letters(qty => %s)"
    assert orders.execute(every, [9]).fetchall() == [("orders", 1), ("other", 2), ("orders", 3)]
    assert orders.execute(every, [2]).fetchall() == [("orders", 1), ("other", 2)]
    assert orders.execute("select * from spanmq.count_dead_letters()").fetchall() == [
        ("orders", "BUSINESS", 1),
        ("orders", "PERMANENT", 1),
        ("other", "PERMANENT", 1),
    ]


def test_purge_deletes_what_fits_and_counts_on(orders: Connection) -> None:
    ids = send(orders, [{"n": n} for n in range(10)])
    kill(orders, ids[:5], "TRANSIENT")
    kill(orders, ids[5:], "BUSINESS")
    assert purge(orders, category="BUSINESS", dry_run=True) == 5
    assert counts(orders) == {"TRANSIENT": 5, "BUSINESS": 5}
    assert purge(orders, category="BUSINESS", qty=2) == 2
    assert chosen(orders) == ids[:5] + ids[7:]
    assert purge(orders, payload='{"n": 0}') == 1
    assert counts(orders) == {"TRANSIENT": 4, "BUSINESS": 3}
    assert purge(orders) == 7
    assert purge(orders) == 0
    assert counts(orders) == {}


def test_history_of_what_was_put_back_is_purged_apart(orders: Connection) -> None:
    ids = send(orders, [1, 2, 3])
    kill(orders, ids)
    orders.execute("select * from spanmq.redrive('orders', qty => 2)")
    assert chosen(orders) == ids[2:]
    assert chosen(orders, redriven=True) == ids[:2]
    assert chosen(orders, redriven=None) == ids
    assert purge(orders, redriven=True) == 2
    assert counts(orders) == {"PERMANENT": 1}
    assert chosen(orders, redriven=None) == ids[2:]


def test_maintain_keeps_dead_letters_to_their_retention(orders: Connection) -> None:
    ids = send(orders, list(range(4)))
    kill(orders, ids)
    orders.execute("select * from spanmq.redrive('orders', qty => 1)")
    # Another queue has one as old, and keeps it.
    orders.execute("select pgmq.create('others'), pgmq.send('others', '1')")
    orders.execute("select spanmq.reject('others', lease_id, array[msg_id]) from spanmq.receive('others')")
    orders.execute(
        "update spanmq_core.dead_letter set dead_at = dead_at - interval '2 days' where msg_id = any (%s)",
        [ids[:3]],
    )
    orders.execute("select * from spanmq.maintain()")
    assert chosen(orders, redriven=None) == ids
    orders.execute("select spanmq.set_policy('orders', '{\"dead_letter_retention\": \"1 day\"}')")
    steps = orders.execute("select action, detail from spanmq.maintain()").fetchall()
    assert ("deleted dead letters", "3") in steps
    assert chosen(orders, redriven=None) == ids[3:]
    assert counts(orders) == {"PERMANENT": 1}
    assert counts(orders, "others") == {"PERMANENT": 1}


def test_newest_come_first_on_request_a_page_at_a_time(orders: Connection) -> None:
    ids = send(orders, list(range(5)))
    for id_ in ids:
        kill(orders, [id_])
    letters = dict(
        orders.execute("select msg_id, dead_letter_id from spanmq.dead_letters('orders')").fetchall()
    )
    assert chosen(orders, newest_first=True) == ids[::-1]
    assert chosen(orders, newest_first=True, qty=2) == [ids[4], ids[3]]
    assert chosen(orders, newest_first=True, qty=2, after=letters[ids[3]]) == [ids[2], ids[1]]
    assert chosen(orders, newest_first=True, queue=None, qty=1) == [ids[4]]
    assert chosen(orders, newest_first=True, redriven=None, category="PERMANENT", qty=1) == [ids[4]]
    assert chosen(orders, after=letters[ids[3]]) == [ids[4]]
