"""Messages that are delivered alone, because their receiver may have died of them."""

import pytest
from tests.schemas import qualified
from tests.sql.queue import Queue, expire_leases

Deliveries = list[list[int]]


def lose(orders: Queue, lease: int) -> None:
    """End a lease, as when its receiver has died and the time is over."""
    expire_leases(orders.connection, "lease_id = %s", lease)


def crash(orders: Queue, n: int = 100) -> list[int]:
    """Receive messages, and die; return their ids."""
    lease, ids = orders.receive(n)
    lose(orders, lease)
    return ids


def handle(orders: Queue, poisons: list[int], n: int = 100) -> Deliveries:
    """Receive until nothing is left, and die with each lease that has a poison; return the deadly deliveries."""
    deadly: Deliveries = []
    for _ in range(500):
        lease, ids = orders.receive(n)
        if not ids:
            return deadly
        if set(ids) & set(poisons):
            lose(orders, lease)
            deadly.append(ids)
        else:
            orders.settle("ack", lease, ids)
    raise AssertionError("it has no end")


def reserve(orders: Queue, n: int = 100) -> list[tuple[int, int, int]]:
    """Receive as a worker does; return ids, leases and slots."""
    rows = orders.rows(
        "select msg_id, lease_id, slot from spanmq.receive('orders', %s, 60, alone => true)", n
    )
    return [(message_id, lease, slot) for message_id, lease, slot in rows]


def begin(orders: Queue, lease: int) -> list[tuple[int, int]]:
    """Begin a reserved delivery; return ids and attempts."""
    return [
        tuple(row)
        for row in orders.rows("select msg_id, attempt from spanmq.begin_alone('orders', %s)", lease)
    ]


def attempts(orders: Queue) -> list[tuple[int, ...]]:
    return orders.rows("select msg_id, attempts, lost, alone from spanmq_core.unsettled order by 1")


@pytest.mark.parametrize("place", [0, 17, 63])
@pytest.mark.parametrize(("most", "beside"), [(2, 1), (3, 2), (5, 3), (12, 3), (None, 3)])
def test_poison_has_exactly_its_attempts_and_takes_no_neighbour_along(
    orders: Queue, place: int, most: int | None, beside: int
) -> None:
    if most is not None:
        orders.policy(f'{{"max_attempts": {most}}}')
    ids = orders.send(64)
    deadly = handle(orders, [ids[place]])
    assert orders.dead() == [ids[place]]
    assert orders.left() == []
    assert deadly == [ids] * beside + [[ids[place]]] * ((most or 25) - beside)
    outcomes = orders.rows("select attempt, outcome from spanmq.failures('orders', %s)", ids[place])
    assert outcomes == [(n, "expired") for n in range(1, most or 25)] + [(most or 25, "dead")]


@pytest.mark.parametrize("ordered", [False, True])
def test_several_poisons_of_many_die_alone(orders: Queue, ordered: bool) -> None:
    orders.policy(f'{{"max_attempts": 3, "ordered": {str(ordered).lower()}}}')
    ids = [msg_id for i in range(50) for msg_id in orders.send(4, f'{{"x-pgmq-group": "{i % 7}"}}')]
    poisons = ids[20:180:40]
    handle(orders, poisons, 40)
    assert orders.dead() == poisons
    assert orders.left() == []


def test_two_lost_leases_of_many_attempts_change_nothing(orders: Queue) -> None:
    ids = orders.send(100)
    assert [crash(orders), crash(orders)] == [ids, ids]
    lease, received = orders.receive()
    assert received == ids
    assert orders.rows("select distinct attempts, lost from spanmq_core.unsettled") == [(3, 2)]
    lose(orders, lease)
    assert [crash(orders) for _ in range(2)] == [ids[:1]] * 2, "after the third, one by one"


def test_message_that_failed_twice_survives_a_poison_beside_it(orders: Queue) -> None:
    orders.policy('{"max_attempts": 3}')
    (good,) = orders.send(1)
    for _ in range(2):
        lease, _ = orders.receive()
        assert orders.settle("nack", lease, [good], "x", None, 0) == {good: "retrying"}
    (poison,) = orders.send(1)
    deadly = handle(orders, [poison])
    assert deadly == [[good, poison], [poison], [poison]]
    assert orders.dead() == [poison]


def test_lost_leases_do_not_count_among_the_failures(orders: Queue) -> None:
    orders.policy('{"max_attempts": 3}')
    ids = orders.send(2)
    assert crash(orders) == ids
    for outcome in ("retrying", "retrying", "dead"):
        lease, received = orders.receive()
        assert received == ids
        assert orders.settle("nack", lease, ids, "x", None, 0) == dict.fromkeys(ids, outcome)
    assert orders.rows("select distinct attempts from spanmq_core.dead_letter") == [(4,)]


@pytest.mark.parametrize("call", ["receive('orders', 100)", "read('orders', 30, 100)"])
def test_callers_get_ordinary_messages_while_one_is_delivered_alone(orders: Queue, call: str) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(3)
    assert crash(orders) == ids
    later = orders.send(2)

    def receive() -> list[int]:
        return [id_ for (id_,) in orders.rows(f"select msg_id from {qualified(call)}")]

    assert receive() == ids[:1]
    assert receive() == later
    assert receive() == []
    orders.rows("select pgmq.delete('orders', %s::bigint)", ids[0])
    assert receive() == ids[1:2]


@pytest.mark.parametrize(
    "call", ["read_grouped('orders', 30, 9)", "read_grouped_rr('orders', 30, 9)", "receive('orders', 9)"]
)
def test_group_of_a_message_that_is_delivered_alone_waits_and_others_go_on(orders: Queue, call: str) -> None:
    orders.policy('{"ordered": true, "max_attempts": 2}')
    blue = orders.send(3, '{"x-pgmq-group": "blue"}')
    assert crash(orders) == blue
    red = orders.send(2, '{"x-pgmq-group": "red"}')
    received = [[id_ for (id_,) in orders.rows(f"select msg_id from {qualified(call)}")] for _ in range(3)]
    assert received == [blue[:1], red, []]


def test_order_of_a_group_holds_where_its_messages_come_alone(orders: Queue) -> None:
    orders.policy('{"ordered": true, "max_attempts": 3}')
    ids = orders.send(6, '{"x-pgmq-group": "blue"}')
    assert [crash(orders), crash(orders)] == [ids, ids]
    newer = orders.send(2, '{"x-pgmq-group": "blue"}')
    received = []
    for _ in range(8):
        lease, got = orders.receive()
        orders.settle("ack", lease, got)
        received.append(got)
    assert received == [*([id_] for id_ in ids), newer, []]


@pytest.mark.parametrize("condition", [None, '{"kind": 1}'])
@pytest.mark.parametrize("priority", [0, 5])
def test_priorities_and_conditions_pass_no_suspect_along(
    orders: Queue, condition: str | None, priority: int
) -> None:
    orders.policy('{"max_attempts": 2}')
    send = (
        "select * from spanmq.send_messages('orders', array_fill('{\"kind\": 1}'::jsonb, array[3]),"
        " priority => %s)"
    )
    ids = [id_ for (id_,) in orders.rows(send, priority)]
    call = "select msg_id from pgmq.read('orders', 0, 9, coalesce(%s, '{}')::jsonb)"
    assert orders.rows(call, condition) == [(id_,) for id_ in ids]
    assert orders.rows(call, condition) == [(ids[0],)]
    assert orders.rows(call, '{"kind": 2}') == []
    assert orders.dead() == []


def test_pop_and_reads_without_a_limit_take_them_like_others(orders: Queue) -> None:
    ids = orders.send(4)
    for _ in range(3):
        assert crash(orders) == ids
    assert crash(orders) == ids[:1]
    assert orders.rows("select msg_id from pgmq.read('orders', 0, 2)") == [(ids[0],), (ids[1],)]
    assert orders.rows("select msg_id from pgmq.pop('orders', 9)") == [(id_,) for id_ in ids]


def test_worker_gets_it_reserved_without_its_body_and_then_begins(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(2)
    assert crash(orders) == ids
    [(message_id, lease, slot)] = reserve(orders)
    assert (message_id, slot) == (ids[0], 0)
    assert attempts(orders) == [(ids[0], 1, 1, 1), (ids[1], 1, 1, 1)]
    shown = orders.rows("select message, attempt from spanmq.receive('orders', 1, 60, alone => true)")
    assert shown == [(None, 2)]
    assert begin(orders, lease) == [(ids[0], 2)]
    assert begin(orders, lease) == [(ids[0], 2)], "again, after an answer that was lost"
    assert orders.rows("select message from spanmq.begin_alone('orders', %s)", lease) == [(1,)]
    assert orders.settle("ack", lease, ids[:1]) == {ids[0]: "acked"}


@pytest.mark.parametrize("times", [1, 40])
def test_reserved_lease_that_ends_changes_nothing(orders: Queue, times: int) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(2)
    assert crash(orders) == ids
    for _ in range(times):
        [(message_id, lease, _)] = reserve(orders)
        assert message_id == ids[0]
        lose(orders, lease)
        assert begin(orders, lease) == [], "it has ended"
    orders.rows("select spanmq.maintain()")
    assert attempts(orders)[0] == (ids[0], 1, 1, 1)
    assert orders.dead() == []


@pytest.mark.parametrize("verb", ["release", "set_vt"])
def test_reserved_message_that_is_given_back_is_still_delivered_alone(orders: Queue, verb: str) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(2)
    assert crash(orders) == ids
    [(_, lease, _)] = reserve(orders)
    if verb == "release":
        orders.settle("release", lease, ids[:1])
    else:
        orders.show(ids[:1])
    orders.rows("select spanmq.maintain()")
    orders.send(1)
    assert handle(orders, ids[:1]) == [ids[:1]]
    assert orders.dead() == ids[:1]


def test_message_that_is_released_while_it_is_alone_loses_no_attempt(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(2)
    assert crash(orders) == ids
    [(_, lease, _)] = reserve(orders)
    assert begin(orders, lease) == [(ids[0], 2)]
    orders.settle("release", lease, ids[:1])
    assert attempts(orders)[0] == (ids[0], 1, 1, 1)
    assert crash(orders) == ids[:1]
    orders.rows("select spanmq.maintain()")
    assert orders.dead() == ids[:1]


def test_workers_reserve_side_by_side(orders: Queue) -> None:
    orders.policy('{"max_attempts": 2}')
    ids = orders.send(3)
    assert crash(orders) == ids
    later = orders.send(1)
    assert [msg_id for msg_id, _, _ in reserve(orders)] == ids[:1]
    assert [msg_id for msg_id, _, _ in reserve(orders)] == ids[1:2]
    assert orders.receive()[1] == later, "others get none meanwhile"


def test_every_change_of_a_row_keeps_the_lost_leases(orders: Queue) -> None:
    orders.policy('{"max_attempts": 9}')
    ids = orders.send(30)
    assert [crash(orders), crash(orders)] == [ids, ids]
    lease, _ = orders.receive()
    orders.settle("nack", lease, ids[:3], "x", None, 0)
    orders.settle("release", lease, ids[3:6])
    orders.settle("extend", lease, ids[6:9], 60, True)
    orders.show(ids[9:12])
    orders.settle("extend", lease, ids[12:], 60)
    orders.receive(2)
    assert {lost for _, _, lost, _ in attempts(orders)} == {2}


def test_batch_of_one_group_comes_back_whole_where_a_message_may_expire(orders: Queue) -> None:
    sent = orders.rows(
        "select * from spanmq.send_messages('orders', array_fill('1'::jsonb, array[5]),"
        ' array_fill(\'{"x-pgmq-group": "blue"}\'::jsonb, array[5]), expires_in => 600)'
    )
    orders.policy('{"ordered": true}')
    ids = [id_ for (id_,) in sent]
    for attempt in (1, 2, 3):
        attempts = orders.rows("select msg_id, attempt from spanmq.receive('orders', 10, -1)")
        assert attempts == [(id_, attempt) for id_ in ids]


def test_own_number_of_attempts_counts(orders: Queue) -> None:
    send = "select * from spanmq.send_messages('orders', array_fill('1'::jsonb, array[2]), max_attempts => 2)"
    own = [id_ for (id_,) in orders.rows(send)]
    others = orders.send(2)
    assert crash(orders) == own + others
    deadly = handle(orders, own[:1])
    assert deadly == [own[:1]]
    assert orders.dead() == own[:1]
