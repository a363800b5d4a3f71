"""send_messages: what it notes with a message, what it refuses, and what counts as sent before."""

from typing import Any

from tests.sql.queue import Queue, column, sqlstate_of


def send(orders: Queue, arguments: str) -> list[int]:
    return column(orders.connection, f"select spanmq.send_messages('orders', {arguments})")


def bodies(orders: Queue) -> list[tuple[int, Any]]:
    return orders.rows("select msg_id, message from pgmq.q_orders order by msg_id")


def uses(orders: Queue) -> tuple[bool, ...]:
    return orders.rows("select is_plain, uses_priority, uses_limits from spanmq_core.queue")[0]


def later(orders: Queue, seconds: int) -> None:
    """Let so much time pass for what was sent before."""
    orders.rows("update spanmq_core.deduplication set until = until - make_interval(secs => %s)", seconds)


def test_plain_messages_are_as_those_of_send(orders: Queue) -> None:
    assert send(orders, "'{10,20,30}'") == [1, 2, 3]
    orders.rows("select pgmq.send('orders', '40')")
    assert bodies(orders) == [(1, 10), (2, 20), (3, 30), (4, 40)]
    assert uses(orders) == (True, False, False)
    assert orders.rows("select distinct priority from spanmq_core.state") == [(None,)]


def test_what_a_message_asks_for_stands_with_it(orders: Queue) -> None:
    [message_id] = send(
        orders,
        """array['1'::jsonb], array['{"x-pgmq-group": "a", "own": 1}'::jsonb],
           delay => 600, priority => 7, expires_in => 1200, max_attempts => 3""",
    )
    [(headers, expires_at, is_delayed)] = orders.rows(
        "select headers, expires_at, q.vt > clock_timestamp() + interval '500 seconds'"
        " from pgmq.q_orders q join spanmq_core.expiry e using (msg_id)"
    )
    assert message_id == 1
    assert is_delayed
    assert orders.value("select %s::timestamptz = %s", headers.pop("x-spanmq-expires-at"), expires_at)
    assert headers == {"x-pgmq-group": "a", "own": 1, "x-spanmq-max-attempts": 3}
    assert orders.rows("select priority, group_key from spanmq_core.unsettled") == [(7, "a")]
    assert uses(orders) == (False, True, True)


def test_headers_without_limits_stay_as_they_are(orders: Queue) -> None:
    exact = '{"a": 12345678901234567890.123456789012345678901234567890}'
    send(orders, f"array['1','2']::jsonb[], array['{exact}', null]::jsonb[], priority => 1")
    rows = orders.rows("select headers::text from pgmq.q_orders order by msg_id")
    assert rows == [(exact,), (None,)]
    assert uses(orders) == (False, True, False)


def test_duplicate_is_not_sent_and_gives_the_first_id(orders: Queue) -> None:
    assert send(orders, "'{1,2}', dedup_ids => '{a,b}'") == [1, 2]
    assert send(orders, "'{3,4,5}', dedup_ids => '{b,c,a}'") == [2, 3, 1]
    assert bodies(orders) == [(1, 1), (2, 2), (3, 4)]


def test_duplicates_within_one_batch_are_one_message(orders: Queue) -> None:
    assert send(orders, "'{1,2,3,4,5}', dedup_ids => '{a,null,a,null,a}', expires_in => 9") == [1, 2, 1, 3, 1]
    assert bodies(orders) == [(1, 1), (2, 2), (3, 4)]
    assert orders.value("select count(*) from spanmq_core.expiry") == 3


def test_each_of_many_keeps_its_headers(orders: Queue) -> None:
    send(orders, "'{0}', dedup_ids => '{a2}'")
    orders.rows(
        """
        select spanmq.send_messages(
            'orders', array_agg(to_jsonb(i) order by i), array_agg(jsonb_build_object('n', i) order by i),
            dedup_ids => array_agg('a' || i % 300 order by i))
        from generate_series(1, 600) i
        """
    )
    text = "select message, headers->'n' from pgmq.q_orders where headers is not null"
    rows = orders.rows(text)
    assert sorted(rows) == [(i, i) for i in range(1, 301) if i != 2]


def test_message_that_is_gone_still_stands_for_its_id(orders: Queue) -> None:
    assert send(orders, "'{1}', dedup_ids => '{a}'") == [1]
    orders.rows("select pgmq.delete('orders', 1)")
    assert send(orders, "'{1}', dedup_ids => '{a}'") == [1]
    assert bodies(orders) == []


def test_id_is_free_again_after_its_time(orders: Queue) -> None:
    assert send(orders, "'{1}', dedup_ids => '{a}', dedup_for => 1000") == [1]
    later(orders, 900)
    assert send(orders, "'{2}', dedup_ids => '{a}', dedup_for => 1000") == [1]
    later(orders, 100)
    assert send(orders, "'{3}', dedup_ids => '{a}', dedup_for => 1000") == [2]
    assert send(orders, "'{4}', dedup_ids => '{a}'") == [2]


def test_id_with_another_fingerprint_is_refused_and_changes_nothing(orders: Queue) -> None:
    assert send(orders, "'{1,2}', dedup_ids => '{a,b}', fingerprint => 'x'") == [1, 2]
    assert send(orders, "'{3,4}', dedup_ids => '{b,a}', fingerprint => 'x'") == [2, 1]
    other = "'{5,6,7}', dedup_ids => '{c,a,d}', fingerprint => 'y'"
    assert sqlstate_of(orders.connection, lambda: send(orders, other)) == "MQ063"
    assert bodies(orders) == [(1, 1), (2, 2)]


def test_ids_with_a_fingerprint_and_without_one_are_apart(orders: Queue) -> None:
    assert send(orders, "'{1,2}', dedup_ids => '{a,b}'") == [1, 2]
    first = send(orders, "'{3,4}', dedup_ids => '{a,b}', fingerprint => 'x'")
    assert not {1, 2} & set(first)
    assert send(orders, "'{3,4}', dedup_ids => '{a,b}', fingerprint => 'x'") == first
    assert send(orders, "'{5,6}', dedup_ids => '{b,a}'") == [2, 1]
    assert [body for _, body in bodies(orders)] == [1, 2, 3, 4]


def test_fingerprint_is_over_with_its_id(orders: Queue) -> None:
    send(orders, "'{1}', dedup_ids => '{a}', dedup_for => 60, fingerprint => 'x'")
    later(orders, 60)
    send(orders, "'{2}', dedup_ids => '{a}', fingerprint => 'y'")
    send(orders, "'{2}', dedup_ids => '{a}', fingerprint => 'y'")
    assert bodies(orders) == [(1, 1), (2, 2)]


def test_same_id_in_another_queue_is_no_duplicate(orders: Queue) -> None:
    orders.rows("select pgmq.create('invoices')")
    send(orders, "'{1}', dedup_ids => '{a}'")
    orders.rows("select spanmq.send_messages('invoices', '{1}', dedup_ids => '{a}')")
    assert orders.rows("select message from pgmq.q_invoices") == [(1,)]


def test_maintain_forgets_ids_after_their_time(orders: Queue) -> None:
    send(orders, "'{1,2,3}', dedup_ids => '{a,b,c}', dedup_for => 60")
    orders.rows("update spanmq_core.deduplication set until = clock_timestamp() where dedup_id <> 'b'")
    steps = orders.rows("select action, detail from spanmq.maintain(100)")
    assert ("forgot deduplication ids", "2") in steps
    assert orders.rows("select dedup_id from spanmq_core.deduplication") == [("b",)]
