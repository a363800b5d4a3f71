"""Ordered queues: whoever receives gets head runs of free groups, whatever fails in between."""

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection, column, one


@pytest.fixture
def orders(connection: Connection) -> Connection:
    """Return a connection to a database with an ordered queue `orders`."""
    connection.execute("select pgmq.create('orders')")
    change(connection, '{"ordered": true}')
    return connection


def change(connection: Connection, settings: str) -> None:
    connection.execute("select spanmq.set_policy('orders', %s)", [settings])


def send(connection: Connection, groups: str) -> list[int]:
    """Send a message for each letter, which is its group; `-` has none."""
    return column(
        connection,
        "select pgmq.send_batch('orders', array_fill('1'::jsonb, array[cardinality(g)]),"
        " array(select case when k <> '-' then jsonb_build_object('x-pgmq-group', k) end"
        "  from unnest(g) with ordinality u (k, i) order by i))"
        " from string_to_array(%s, null) g",
        groups,
    )


RECEIVE = "select msg_id from spanmq.receive('orders', %s, 30)"
CLAIMS = [RECEIVE, "select msg_id from pgmq.read('orders', 30, %s)"]


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_group_is_given_to_one_at_a_time(orders: Connection, claim: str) -> None:
    ids = send(orders, "aaa")
    assert column(orders, claim, 2) == ids[:2]
    assert column(orders, claim, 10) == []
    column(orders, "select pgmq.delete('orders', %s::bigint[])", ids[:1])
    assert column(orders, claim, 10) == []
    column(orders, "select pgmq.delete('orders', %s::bigint[])", ids[1:2])
    assert column(orders, claim, 10) == ids[2:]


@pytest.mark.parametrize(
    "settings", ['{"ordered": true}', '{"ordered": false, "max_in_flight_per_group": 1}']
)
@pytest.mark.parametrize("comes_back", [False, True])
def test_messages_without_a_group_are_not_hidden_by_blocked_groups(
    orders: Connection, settings: str, *, comes_back: bool
) -> None:
    change(orders, settings)
    first = send(orders, "ab" * 50)[:2]
    assert column(orders, RECEIVE, 2) == first
    ids = send(orders, "-")
    if comes_back:
        one(orders, "select msg_id from pgmq.set_vt('orders', %s, 0)", ids[0])
    assert column(orders, RECEIVE, 1) == ids
    assert column(orders, RECEIVE, 1) == []


def test_messages_without_a_group_are_one_group(orders: Connection) -> None:
    ids = send(orders, "--")
    assert column(orders, RECEIVE, 1) == ids[:1]
    assert column(orders, RECEIVE, 1) == []


@pytest.mark.parametrize("groups", ["aab", "--a"])
@pytest.mark.parametrize("claim", [*CLAIMS, "select msg_id from pgmq.read_grouped('orders', 30, %s)"])
def test_a_group_that_waits_for_a_delayed_message_hides_no_other(
    orders: Connection, claim: str, groups: str
) -> None:
    ids = send(orders, groups)
    column(orders, "select msg_id from pgmq.set_vt('orders', %s, 60)", ids[0])
    # Of claims of one message every second one goes by turn.
    assert [*column(orders, claim, 1), *column(orders, claim, 1)] == ids[2:]


@pytest.mark.parametrize("function", ["read_grouped", "read_grouped_rr", "receive"])
def test_what_stands_behind_a_delayed_message_is_made_up_by_the_next_group(
    orders: Connection, function: str
) -> None:
    ids = send(orders, "aaabbb")
    column(orders, "select msg_id from pgmq.set_vt('orders', %s, 60)", ids[1])
    claim = (
        RECEIVE if function == "receive" else f"select msg_id from {qualified(function)}('orders', 30, %s)"
    )
    assert column(orders, claim, 3) == [ids[0], *ids[3:5]]


@pytest.mark.parametrize("claim", [*CLAIMS, "select msg_id from pgmq.pop('orders', %s)"])
@pytest.mark.parametrize("groups", ["a" + 100 * "b", 18 * "a" + 19 * "b" + "-", "abc" + 5 * "d" + 20 * "e"])
def test_as_much_comes_as_is_wanted_and_free(orders: Connection, claim: str, groups: str) -> None:
    ids = send(orders, groups)
    got = column(orders, claim, 20)
    assert len(got) == 20
    for group in set(groups):
        own = [id_ for id_, key in zip(ids, groups, strict=True) if key == group]
        assert [id_ for id_ in got if id_ in own] == own[: len(set(got) & set(own))], "its head run"


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_takes_what_a_group_has_before_it_takes_of_the_next(orders: Connection, claim: str) -> None:
    change(orders, '{"fill_groups": true}')
    ids = send(orders, "abacab")
    assert column(orders, claim, 3) == [ids[0], ids[2], ids[4]]
    assert sorted(column(orders, claim, 9)) == [ids[1], ids[3], ids[5]]
    # Without groups in order, it has no effect.
    change(orders, '{"ordered": false}')
    ids = send(orders, "aba")
    assert column(orders, claim, 2) == ids[:2]


@pytest.mark.parametrize("claim", [*CLAIMS, "select msg_id from pgmq.read_grouped('orders', 30, %s)"])
def test_what_came_back_is_given_though_a_delayed_message_stands_behind_it(
    orders: Connection, claim: str
) -> None:
    ids = send(orders, "aaa")
    orders.execute("select pgmq.set_vt('orders', %s::bigint[], 3600)", [ids[1:]])
    # Its lease has run out.
    assert column(orders, "select msg_id from spanmq.receive('orders', 1, -1)") == ids[:1]
    assert column(orders, claim, 10) == ids[:1]
    assert column(orders, claim, 10) == []


def test_what_a_claim_has_taken_it_does_not_take_again(orders: Connection) -> None:
    ids = send(orders, "a" + 30 * "b")
    assert column(orders, "select msg_id from spanmq.receive('orders', 20, 0)") == ids[:20]


@pytest.mark.parametrize("most", [3, 7])
def test_no_group_gives_more_than_may_be_in_flight(orders: Connection, most: int) -> None:
    change(orders, f'{{"max_in_flight_per_group": {most}}}')
    ids = send(orders, "a" + 30 * "b")
    assert column(orders, RECEIVE, 20) == ids[: 1 + most]
    assert column(orders, RECEIVE, 20) == []


def test_pop_takes_out_the_head_of_a_free_group(orders: Connection) -> None:
    ids = send(orders, "aab")
    orders.execute("update pgmq.q_orders set vt = now() + interval '1 hour' where msg_id = %s", ids[:1])
    assert column(orders, "select msg_id from pgmq.pop('orders', 10)") == ids[2:]
    assert column(orders, "select msg_id from pgmq.pop('orders', 10)") == []


def test_a_conditional_read_of_an_ordered_queue_is_refused(orders: Connection) -> None:
    send(orders, "a")
    with pytest.raises(psycopg.Error, match="middle of a group") as caught:
        orders.execute("select pgmq.read('orders', 30, 1, '{\"a\": 1}')")
    assert caught.value.sqlstate == "MQ002"


def test_slots_share_an_ordered_claim(orders: Connection) -> None:
    ids = send(orders, "abcdef")
    rows = orders.execute("select msg_id, slot from spanmq.receive('orders', 6, 30, 3)").fetchall()
    assert sorted(row[0] for row in rows) == ids
    assert sorted(row[1] for row in rows) == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    "claim",
    [
        *CLAIMS,
        "select msg_id from pgmq.pop('orders', %s)",
        "select msg_id from pgmq.read_grouped('orders', 30, %s)",
        "select msg_id from pgmq.read_grouped_rr('orders', 30, %s)",
        "select msg_id from pgmq.read_grouped_head('orders', 30, %s)",
    ],
)
def test_nothing_comes_from_a_paused_queue_but_senders_go_on(orders: Connection, claim: str) -> None:
    change(orders, '{"paused": true}')
    ids = send(orders, "ab")
    assert column(orders, claim, 5) == []
    change(orders, '{"paused": false}')
    assert column(orders, claim, 5) == ids


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize(
    ("groups", "place"), [("a" * 16, 15), ("a" * 16, 7), ("ab" * 8, 15), ("abcdefgh" * 2, 9)]
)
def test_message_that_kills_its_worker_is_found_soon(
    orders: Connection, groups: str, place: int, in_batches: bool
) -> None:
    orders.execute("""select spanmq.set_policy('orders', '{"max_attempts": 3}')""")
    ids = send(orders, groups)
    starts = dict.fromkeys(ids, 0)
    deaths = 0
    for _ in range(100):
        # Messages of a batch are started in turn or together. A worker that starts that one dies with all it has.
        got = orders.execute("select lease_id, msg_id from spanmq.receive('orders', 16, -1)").fetchall()
        received = [each for _, each in got]
        is_deadly = ids[place] in received
        for each in received[: received.index(ids[place]) + 1] if is_deadly and not in_batches else received:
            starts[each] += 1
        deaths += is_deadly
        if not is_deadly:
            if not got and one(orders, "select count(*) from pgmq.q_orders") == 0:
                break
            column(
                orders,
                "select msg_id from spanmq.ack('orders', %s, %s)",
                got[0][0],
                received,
            )
    assert one(orders, "select array_agg(msg_id) from spanmq_core.dead_letter") == [ids[place]]
    assert deaths == 3
    assert max(count for each, count in starts.items() if each != ids[place]) == 3, (
        "twice beside it, once alone"
    )


def test_group_that_only_came_back_has_its_turn(orders: Connection) -> None:
    # More messages of one blocked group became visible before it than a claim looks at.
    for group, n in (("a", 2000), ("b", 1)):
        ids = send(orders, group * n)
        (lease,) = set(column(orders, "select lease_id from spanmq.receive('orders', %s)", n))
        column(orders, "select msg_id from spanmq.release('orders', %s, %s)", lease, ids[-1:])
        if n > 1:
            column(orders, "select msg_id from pgmq.set_vt('orders', %s::bigint[], 0)", ids[1:])
    assert [*column(orders, RECEIVE, 1), *column(orders, RECEIVE, 1)] == ids


@pytest.mark.parametrize("settings", ['{"ordered": true}', '{"ordered": false, "max_in_flight": 1000}'])
def test_claim_reads_few_rows_of_a_long_queue(orders: Connection, settings: str) -> None:
    change(orders, settings)
    send(orders, "abcdefghij" * 500)
    orders.execute("analyze spanmq_core.state")
    # The claim goes on at the end of the ring, where the messages without a group are: no index has these.
    queue_id = one(orders, "select queue_id from spanmq_core.queue")
    orders.execute(f"set spanmq.turn_{queue_id} = '575000000000000000'".encode())
    fetched = "select pg_stat_get_xact_tuples_fetched('spanmq_core.state_pkey'::regclass)"
    before = one(orders, fetched)
    assert len(column(orders, RECEIVE, 10)) == 10
    assert one(orders, fetched) - before < 1000
