"""Ordered groups share the receivers: neither a long backlog nor blocked groups hide a free one.

Proved by what is delivered and by pages touched, not by time.
"""

import psycopg
import pytest
from tests.sql.cost.counts import begin_alike
from tests.sql.cost.counts import pages_touched as pages
from tests.sql.queue import Connection, column, send_groups

FREE, LONG = 40, 3000


@pytest.fixture
def orders(own_connection: Connection) -> Connection:
    own_connection.execute("select pgmq.create('orders')")
    own_connection.execute("select spanmq.set_policy('orders', '{\"ordered\": true}')")
    # A claim of a session goes on where the last one ended: the first one's place decides how far each must look.
    begin_alike(own_connection)
    return own_connection


def send(connection: Connection, n: int, group: str) -> None:
    send_groups(connection, "orders", n, group)


@pytest.mark.parametrize("quantity", [1, 4, 10])
def test_no_group_waits_because_another_has_a_long_backlog(orders: Connection, quantity: int) -> None:
    send(orders, LONG, "'long'")
    send(orders, FREE, "'g' || i")
    seen: set[str] = set()
    claims = 0
    while len(seen) < FREE:
        rows = orders.execute(
            "select msg_id, group_key from spanmq.receive('orders', %s, 30)", [quantity]
        ).fetchall()
        column(orders, "select pgmq.delete('orders', %s::bigint[])", [row[0] for row in rows])
        seen |= {row[1] for row in rows} - {"long"}
        claims += 1
        # Half of what is claimed goes round the ring of all groups.
        assert claims <= 2 + 2 * (FREE + 1) / quantity
    assert column(orders, "select count(*) from pgmq.q_orders") >= [LONG - quantity * claims]


def test_the_oldest_group_is_served_too(orders: Connection) -> None:
    send(orders, 20, "'old'")
    send(orders, 1000, "'g' || i")
    for _ in range(20):
        got = column(orders, "select msg_id from spanmq.receive('orders', 2, 30)")
        column(orders, "select pgmq.delete('orders', %s::bigint[])", got)
        assert len(got) == 2
    assert column(
        orders, "select count(*) from pgmq.q_orders q where q.headers->>'x-pgmq-group' = 'old'"
    ) == [0]


def test_what_stands_behind_a_blocked_group_costs_nothing(orders: Connection) -> None:
    def cost(backlog: int) -> int:
        send(orders, 1, "'blocked'")
        assert len(column(orders, "select msg_id from spanmq.receive('orders', 1, 3600)")) == 1
        send(orders, backlog, "'blocked'")
        send(orders, 10, "'g' || i")
        return pages(orders, "select * from spanmq.receive('orders', 5, 30)")

    few = cost(300)
    column(orders, "select pgmq.purge_queue('orders')")
    # A claim looks at 5,000 messages of one group at most.
    assert cost(20000) < few + 5000


def test_with_99_of_100_groups_in_backoff_a_claim_is_bounded_and_finds_some(orders: Connection) -> None:
    send(orders, 2000, "'g' || i")
    send(orders, 2000, "'g' || i")
    heads = [
        each
        for _ in range(4)
        for each in column(orders, "select msg_id from pgmq.read_grouped_head('orders', 3600, 500)")
    ]
    assert sorted(heads) == list(range(1, 2001))
    blocked = [each for each in heads if each % 100]
    orders.execute("select count(*) from pgmq.set_vt('orders', %s::bigint[], 3600)", [blocked])
    free = [each for each in heads if each % 100 == 0]
    orders.execute("select count(*) from pgmq.set_vt('orders', %s::bigint[], 0)", [free])
    assert pages(orders, "select * from spanmq.receive('orders', 5, 30)") < 20000
    seen: set[int] = set()
    claims = 0
    while not seen >= set(free):
        got = column(orders, "select msg_id from spanmq.receive('orders', 5, 3600)")
        assert got, "a claim finds something as long as there is something"
        seen |= set(got)
        claims += 1
        assert claims <= 20
    assert seen <= set(free) | {each + 2000 for each in free}


def test_100_000_groups_cost_a_claim_no_more_than_1000(orders: Connection) -> None:
    send(orders, 1000, "'g' || i")
    few = pages(orders, "select * from spanmq.receive('orders', 10, 30)")
    send(orders, 99_000, "'h' || i")
    assert pages(orders, "select * from spanmq.receive('orders', 10, 30)") < 3 * few


def blocked_backlog(orders: Connection, n: int) -> None:
    """Send n messages of two groups that are both blocked."""
    send(orders, 2, "'blocked' || i %% 2")
    assert len(column(orders, "select msg_id from pgmq.read_grouped_head('orders', 3600, 2)")) == 2
    send(orders, n, "'blocked' || i %% 2")


@pytest.mark.parametrize(
    "read",
    [
        "select msg_id from spanmq.receive('orders', 1, 30)",
        "select msg_id from pgmq.read_grouped_rr('orders', 30, 10)",
    ],
)
def test_messages_without_a_group_are_found_behind_any_number_of_blocked_runs(
    orders: Connection, read: str
) -> None:
    blocked_backlog(orders, 21_000)
    ids = column(orders, "select pgmq.send('orders', '1') from generate_series(1, 2)")
    got: list[int] = []
    while len(got) < 2:
        # Every call looks at as many as it may, and the next one goes on.
        found = column(orders, read) or column(orders, read)
        assert found
        got += found
        column(orders, "select pgmq.delete('orders', %s::bigint[])", found)
    assert got == ids


def test_returned_message_without_a_group_is_found_behind_any_number_of_blocked_ones(
    orders: Connection,
) -> None:
    blocked_backlog(orders, 6_000)
    [late] = column(orders, "select pgmq.send('orders', '1')")
    column(
        orders,
        "select count(*) from pgmq.set_vt('orders', array(select generate_series(3, %s::bigint)), 0)",
        late,
    )
    assert column(orders, "select msg_id from spanmq.receive('orders', 10, 30)") == [late]


def test_message_without_a_group_that_was_committed_late_has_its_turn_before_newer_ones_end(
    database: str,
) -> None:
    with psycopg.connect(database, autocommit=True) as main, psycopg.connect(database) as other:
        main.execute("select pgmq.create('orders')")
        main.execute("select spanmq.set_policy('orders', '{\"ordered\": true}')")
        blocked_backlog(main, 600)
        [late] = column(other, "select pgmq.send('orders', '1')")
        send(main, 600, "'blocked' || i %% 2")
        for n in range(10):
            column(main, "select pgmq.send('orders', '1')")
            [got] = column(main, "select msg_id from spanmq.receive('orders', 1, 30)")
            column(main, "select pgmq.delete('orders', %s::bigint)", got)
            if n == 5:
                other.commit()
            if got == late:
                return
    raise AssertionError("it was passed over")
