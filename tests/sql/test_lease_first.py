"""The short ways of read, receive, ack and delete: they do what the long ones do."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.patience import WAIT_SECONDS

TAKE = {
    "read": "select msg_id, read_ct, message from pgmq.read('orders', 60, %s)",
    "receive": "select msg_id, read_ct, message from pgmq.receive('orders', %s, 60)",
}


@pytest.fixture(params=TAKE)
def take(
    request: pytest.FixtureRequest, connection: Connection[Any]
) -> Callable[[int], list[tuple[Any, ...]]]:
    def call(n: int) -> list[tuple[Any, ...]]:
        return connection.execute(TAKE[request.param].encode(), [n]).fetchall()

    connection.execute("select pgmq.create('orders')")
    # A claim that takes long, as the first of a session does, goes the long way.
    assert [*call(1), *call(2)] == []
    return call


def send(connection: Connection[Any], first: int, last: int) -> None:
    connection.execute(
        "select pgmq.send_batch('orders', array(select to_jsonb(i) from generate_series(%s::bigint, %s) i))",
        [first, last],
    )


def log_of(connection: Connection[Any]) -> str:
    row = connection.execute("select log_name from spanmq.segment order by lo limit 1").fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("n", [1, 2, 7, 300])
def test_bites_of_any_size_take_each_message_once(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]], n: int
) -> None:
    send(connection, 1, 20)
    send(connection, 21, 290)
    taken = []
    while rows := take(n):
        taken += rows
    assert taken == [(number, 1, number) for number in range(1, 291)]
    sizes = connection.execute(
        "select sum(n), count(*) filter (where state <> 'l') from spanmq.span"
    ).fetchone()
    assert sizes == (290, 0)


@pytest.mark.parametrize("sizes", [[1], [3], [1, 1], [2, 300], [256, 1, 1]])
def test_receiver_that_asks_for_more_than_there_is_gets_all_of_it(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]], sizes: list[int]
) -> None:
    for size in sizes:
        send(connection, 1, size)
    taken = take(1000)
    assert [row[0] for row in taken] == list(range(1, sum(sizes) + 1))
    spans = connection.execute("select count(*), sum(n) from spanmq.span where state = 'l'").fetchone()
    assert spans is not None
    assert spans[1] == sum(sizes)


def test_who_asks_for_more_gets_what_stands_behind_a_gap_too(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]]
) -> None:
    for first, last in ((1, 1), (2, 2), (3, 3), (4, 4)):
        send(connection, first, last)
    connection.execute("select pgmq.delete('orders', 3)")
    # Of other attempts than those before it.
    connection.execute("update spanmq.span set attempts = 1 where lo = 4")
    assert [row[:2] for row in take(10)] == [(1, 1), (2, 1), (4, 2)]


@pytest.mark.parametrize("n", [1, 3])
def test_a_message_without_its_row_is_settled_and_the_next_one_comes(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]], n: int
) -> None:
    send(connection, 1, n)
    send(connection, n + 1, 2 * n)
    connection.execute(f"delete from spanmq.{log_of(connection)} where msg_id <= {n}".encode())
    assert [row[0] for row in take(n)] == list(range(n + 1, 2 * n + 1))
    missing = connection.execute("select array_agg(msg_id order by msg_id) from spanmq.missing").fetchone()
    assert missing == (list(range(1, n + 1)),)
    assert connection.execute("select queue_length from pgmq.metrics('orders')").fetchone() == (n,)


@pytest.mark.parametrize("n", [1, 3])
def test_messages_of_an_older_segment_are_found(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]], n: int
) -> None:
    send(connection, 1, 3)
    connection.execute("select setval('pgmq.q_orders_msg_id_seq', (select max(hi) + 1 from spanmq.segment))")
    send(connection, 4, 6)
    row = connection.execute("select log_lo from spanmq.queue").fetchone()
    assert row is not None
    assert row[0] > 3
    assert [message for _, _, message in take(n)] == list(range(1, n + 1))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_runs_that_do_not_touch_each_other_are_taken_in_order(
    connection: Connection[Any], take: Callable[[int], list[tuple[Any, ...]]], n: int
) -> None:
    for first, last in ((1, 1), (2, 2), (3, 8), (9, 9)):
        send(connection, first, last)
    connection.execute("select pgmq.delete('orders', 2)")
    taken = []
    while rows := take(n):
        taken += rows
    assert [row[0] for row in taken] == [1, 3, 4, 5, 6, 7, 8, 9]


def test_one_message_comes_again_with_its_attempt_and_its_error(connection: Connection[Any]) -> None:
    connection.execute(
        "select pgmq.create('orders'), pgmq.send('orders', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)"
    )
    receive = "select lease_id, attempt, read_ct, slot, group_key, last_error from pgmq.receive('orders')"
    first = connection.execute(receive).fetchone()
    assert first is not None
    assert first[1:] == (1, 1, 1, "a", None)
    connection.execute(
        "select pgmq.nack('orders', %s, array[1]::bigint[], error => 'late', retry_in => 0)", first[:1]
    )
    # What fell due goes the long way; what is ready again, the short one.
    connection.execute("select pgmq.set_vt('orders', 1, 0)")
    again = connection.execute(receive).fetchone()
    assert again is not None
    assert again[1:] == (2, 2, 1, "a", "late")
    connection.execute("update spanmq.span set state = 'r', lease_id = 0")
    third = connection.execute(receive).fetchone()
    assert third is not None
    assert third[1:] == (3, 3, 1, "a", "late")


@pytest.mark.parametrize(
    ("lease", "ids", "archive", "outcome"),
    [
        ("lease_id", "array[msg_id]", False, [(1, "acked")]),
        ("lease_id + 1", "array[msg_id]", False, [(1, "stale")]),
        ("lease_id", "array[7]::bigint[]", False, [(7, "stale")]),
        ("lease_id", "array[null, msg_id]", False, [(1, "acked")]),
        ("lease_id", "array[msg_id, msg_id]", False, [(1, "acked")]),
        ("lease_id", "array[msg_id]", True, [(1, "acked")]),
    ],
)
def test_an_ack_of_one_settles_what_the_lease_holds(
    connection: Connection[Any], lease: str, ids: str, archive: bool, outcome: list[tuple[int, str]]
) -> None:
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    connection.execute(
        "select pgmq.set_policy('orders', %s)", ['{"archive_on_ack": true}' if archive else "{}"]
    )
    acked = connection.execute(
        f"select a.* from pgmq.receive('orders') m, pgmq.ack('orders', {lease}, {ids}) a".encode()
    ).fetchall()
    assert acked == outcome
    held = connection.execute("select count(*) from spanmq.span").fetchone()
    archived = connection.execute("select count(*) from pgmq.a_orders").fetchone()
    assert (held, archived) == ((int(outcome != [(1, "acked")]),), (int(archive),))


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("sizes", [[300], [100, 100, 100], [7, 3]])
def test_an_ack_of_a_run_settles_what_is_left_of_its_lease(
    connection: Connection[Any], sizes: list[int], left: int
) -> None:
    connection.execute("select pgmq.create('orders')")
    for first, n in zip([sum(sizes[:i]) for i in range(len(sizes))], sizes, strict=True):
        send(connection, first + 1, first + n)
    total = sum(sizes)
    ack = "select a.* from pgmq.ack('orders', %s, array(select generate_series(%s::bigint, %s))) a order by 1"
    taken = connection.execute("select lease_id from pgmq.receive('orders', %s)", [total]).fetchall()
    lease = taken[0][0]
    assert len(taken) == total
    assert connection.execute(ack, [lease + 1, 1, total]).fetchone() == (1, "stale")
    connection.execute("select pgmq.delete('orders', 2)")
    last = total - left
    outcomes = connection.execute(ack, [lease, 1, last]).fetchall()
    assert outcomes == [(i, "stale" if i == 2 else "acked") for i in range(1, last + 1)]
    assert connection.execute("select msg_id from pgmq.q_orders").fetchall() == [(total,)][:left]
    assert connection.execute("select count(*) from spanmq.settled").fetchone() == (0,)
    outcome = "acked" if left else "stale"
    assert connection.execute(ack, [lease, total, total]).fetchall() == [(total, outcome)]


def test_an_ack_settles_no_id_that_it_does_not_name(connection: Connection[Any]) -> None:
    connection.execute("select pgmq.create('orders')")
    send(connection, 1, 3)
    lease = connection.execute("select lease_id from pgmq.receive('orders', 3)").fetchall()[0][0]
    ack = "select * from pgmq.ack('orders', %s, array[1, 3, 3]::bigint[])"
    assert connection.execute(ack, [lease]).fetchall() == [(1, "acked"), (3, "acked")]
    assert connection.execute("select msg_id from pgmq.q_orders").fetchall() == [(2,)]


def test_an_ack_of_what_no_lease_holds_changes_nothing(connection: Connection[Any]) -> None:
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    for lease in ("0", "-1", "null"):
        with pytest.raises(Exception, match="lease_id must be one"), connection.transaction():
            connection.execute(f"select pgmq.ack('orders', {lease}, array[1]::bigint[])".encode())
    assert connection.execute("select count(*) from pgmq.q_orders").fetchone() == (1,)


GROUPED = ("read_grouped", "read_grouped_rr", "read_grouped_head")


@pytest.fixture(params=GROUPED)
def take_one(request: pytest.FixtureRequest, connection: Connection[Any]) -> Callable[[], list[int]]:
    def call() -> list[int]:
        read = f"select msg_id from pgmq.{request.param}('orders', 60, 1)"
        return [row[0] for row in connection.execute(read.encode()).fetchall()]

    connection.execute("select pgmq.create('orders')")
    assert call() == []
    return call


def send_grouped(connection: Connection[Any], *groups: str | None) -> None:
    headers = [None if group is None else f'{{"x-pgmq-group": "{group}"}}' for group in groups]
    connection.execute(
        "select pgmq.send_batch('orders', array_fill('1'::jsonb, array[%s]), %s::jsonb[])",
        [len(groups), headers],
    )


def test_one_message_at_a_time_comes_from_the_oldest_free_group(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, "a", "b", "a", "a", "b", "c", "a")
    send_grouped(connection, "c", "a")
    assert [take_one(), take_one(), take_one(), take_one()] == [[1], [2], [6], []]
    connection.execute("select pgmq.delete('orders', 1)")
    assert [take_one(), take_one()] == [[3], []]
    connection.execute("select pgmq.delete('orders', 6), pgmq.delete('orders', 3)")
    assert [take_one(), take_one(), take_one()] == [[4], [8], []]
    # Each was delivered once, and nothing is lost.
    counts = connection.execute("select msg_id, read_ct from pgmq.q_orders order by 1").fetchall()
    assert counts == [(2, 1), (4, 1), (5, 0), (7, 0), (8, 1), (9, 0)]


def test_messages_without_a_group_keep_their_turn(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, None, "a", None, "b")
    assert [take_one(), take_one(), take_one(), take_one()] == [[1], [2], [4], []]


def test_a_delayed_message_holds_its_group_back(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, "a", "a", "b")
    connection.execute("select pgmq.set_vt('orders', 1, 60)")
    assert [take_one(), take_one()] == [[3], []]


def test_a_group_of_a_nacked_message_waits(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, "a", "a", "b")
    assert take_one() == [1]
    connection.execute("select pgmq.set_vt('orders', 1, 60)")
    assert [take_one(), take_one()] == [[3], []]


def test_a_group_that_a_dead_letter_blocks_is_left_alone(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, "a", "a", "b")
    connection.execute("select pgmq.set_policy('orders', '{\"dead_letter_blocks_group\": true}')")
    connection.execute(
        "select pgmq.reject('orders', m.lease_id, array[m.msg_id]) from pgmq.receive('orders', 1) m"
    )
    assert [take_one(), take_one()] == [[3], []]


def test_a_grouped_message_without_its_row_is_settled(
    connection: Connection[Any], take_one: Callable[[], list[int]]
) -> None:
    send_grouped(connection, "a", "a", "b")
    connection.execute(f"delete from spanmq.{log_of(connection)} where msg_id = 1".encode())
    assert [take_one(), take_one(), take_one()] == [[2], [3], []]
    assert connection.execute("select array_agg(msg_id) from spanmq.missing").fetchone() == ([1],)


@pytest.mark.parametrize("read", GROUPED)
def test_a_group_taken_by_a_transaction_that_is_open_is_not_taken_twice(database: str, read: str) -> None:
    call = f"select msg_id from pgmq.{read}('orders', 60, 1)".encode()
    send = "select pgmq.send('orders', '1'::jsonb, '{\"x-pgmq-group\": \"a\"}'::jsonb)"
    with (
        psycopg.connect(database) as late,
        psycopg.connect(database) as first,
        psycopg.connect(database, autocommit=True) as second,
    ):
        second.execute("select pgmq.create('orders')")
        assert second.execute(call).fetchall() == []
        late.execute(send.encode())
        second.execute(send.encode())
        assert first.execute(call).fetchall() == [(2,)]
        # Now the head is a message that `first` could not see, and its lease one that `second` can't.
        late.commit()
        assert second.execute(call).fetchall() == []
        first.rollback()
        assert second.execute(call).fetchall() == [(1,)]


REJECT = "select * from pgmq.reject('orders', %s, array[%s], 'boom', 'BUSINESS', 'Boom', worker => 'w')"
LETTER = (
    "select message, headers, group_key, attempts, enqueued_at = first_failed_at, first_failed_at = dead_at,"
    " last_failed_at = dead_at, category, error, error_class, traceback, worker, history"
    " from pgmq.dead_letters('orders') where msg_id = %s"
)


def receive_each(connection: Connection[Any], n: int) -> list[tuple[int, int]]:
    got: list[tuple[int, int]] = []
    stop_at = monotonic() + WAIT_SECONDS
    # What comes back is found after half a second at most, where a look was slow: see hint.sql.
    while len(got) < n and monotonic() < stop_at:
        got += connection.execute("select lease_id, msg_id from pgmq.receive('orders')").fetchall()
    return got


def row_of(connection: Connection[Any], query: str, *arguments: Any) -> tuple[Any, ...] | None:
    return connection.execute(query.encode(), arguments).fetchone()


def test_a_rejected_message_is_the_same_dead_letter_whichever_way_it_went(
    connection: Connection[Any],
) -> None:
    connection.execute("select pgmq.create('orders')")
    send_grouped(connection, "a", "a")
    (short_lease, short), (long_lease, long) = receive_each(connection, 2)
    assert row_of(connection, REJECT, short_lease, short) == (short, "dead")
    # Two ids, of which one is no message, go the long way.
    connection.execute(
        "select pgmq.reject('orders', %s, array[%s, 99], 'boom', 'BUSINESS', 'Boom', worker => 'w')",
        [long_lease, long],
    )
    assert row_of(connection, LETTER, short) == row_of(connection, LETTER, long)
    assert row_of(connection, LETTER, short) is not None
    assert row_of(connection, "select n from pgmq.count_dead_letters('orders')") == (2,)
    assert row_of(connection, "select count(*) from pgmq.q_orders") == (0,)
    assert row_of(connection, REJECT, short_lease, short) == (short, "stale")


@pytest.mark.parametrize("kind", ["create", "create_unlogged"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_rejected_message_takes_its_story_along(connection: Connection[Any], kind: str, n: int) -> None:
    connection.execute(f"select pgmq.{kind}('orders')".encode())
    send_grouped(connection, *n * [None])
    connection.execute(
        "select pgmq.nack('orders', min(lease_id), array_agg(msg_id), 'first', 'DEPENDENCY', retry_in => 0)"
        " from pgmq.receive('orders', %s)",
        [n],
    )
    lease, id_ = receive_each(connection, n)[-1]
    assert row_of(connection, REJECT, lease, id_) == (id_, "dead")
    story = "select jsonb_path_query_array(history, '$.error'), attempts from pgmq.dead_letters('orders')"
    assert row_of(connection, story) == (["first"], 2)


def test_a_rejected_message_holds_its_group_back_where_the_policy_says_so(
    connection: Connection[Any],
) -> None:
    connection.execute("select pgmq.create('orders')")
    connection.execute("select pgmq.set_policy('orders', '{\"dead_letter_blocks_group\": true}')")
    send_grouped(connection, "a", "a", None)
    ((lease, id_),) = receive_each(connection, 1)
    assert row_of(connection, REJECT, lease, id_) == (1, "dead")
    assert row_of(connection, "select msg_id from pgmq.read_grouped('orders', 30, 1)") == (3,)
    assert row_of(connection, "select msg_id from pgmq.read_grouped('orders', 30, 1)") is None


def test_a_rejected_message_keeps_its_priority(connection: Connection[Any]) -> None:
    connection.execute(
        "select pgmq.create('orders'), pgmq.send_messages('orders', array['1']::jsonb[], priority => 7)"
    )
    ((lease, id_),) = receive_each(connection, 1)
    assert row_of(connection, REJECT, lease, id_) == (id_, "dead")
    assert row_of(connection, "select priority from spanmq.dead_letter") == (7,)


def test_a_rejected_message_without_its_row_is_no_dead_letter(connection: Connection[Any]) -> None:
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    ((lease, id_),) = receive_each(connection, 1)
    connection.execute(f"delete from spanmq.{log_of(connection)}".encode())
    assert row_of(connection, REJECT, lease, id_) == (id_, "dead")
    assert row_of(connection, "select sum(n) from pgmq.count_dead_letters('orders')") == (None,)
    assert row_of(connection, "select msg_id from spanmq.missing") == (id_,)


@pytest.mark.parametrize(
    ("lease", "category", "what"),
    [("null", "'BUSINESS'", "lease_id must be"), ("1", "'NONE'", "no category"), ("0", "null", "lease_id")],
)
def test_what_is_no_rejection_of_one_changes_nothing(
    connection: Connection[Any], lease: str, category: str, what: str
) -> None:
    connection.execute("select pgmq.create('orders'), pgmq.send('orders', '1')")
    receive_each(connection, 1)
    with pytest.raises(Exception, match=what), connection.transaction():
        connection.execute(
            f"select pgmq.reject('orders', {lease}, array[1]::bigint[], category => {category})".encode()
        )
    assert row_of(connection, "select count(*) from pgmq.q_orders") == (1,)


@pytest.mark.parametrize("n", [1, 3])
def test_lease_lasts_as_the_policy_says_unless_the_receiver_does(connection: Connection[Any], n: int) -> None:
    connection.execute("select pgmq.create('orders')")
    connection.execute("select pgmq.set_policy('orders', '{\"lease\": 77}')")
    lasts = (
        "select extract(epoch from vt - last_read_at)::int, count(*)"
        " from pgmq.receive('orders', %s{}) group by 1"
    )
    for given, seconds in (("", 77), (", 5", 5), (", null", 77)):
        send(connection, 1, n)
        assert row_of(connection, lasts.format(given), n) == (seconds, n)
