"""extend: single messages of a lease held longer, or shorter, than the rest of it."""

import pytest
from tests.sql.queue import Queue, change_state, column
from tests.sql.race.sessions import Race


def seconds_left(orders: Queue, more: str = "") -> list[int]:
    """Of each message of the queue, rounded to 200: the machine may stand still for a while."""
    left = "round(extract(epoch from vt - clock_timestamp()) / 200) * 200"
    return column(orders.connection, f"select ({left})::int from pgmq.q_orders {more} order by 1")


@pytest.mark.parametrize("place", [0, 4, 9])
def test_one_message_is_held_by_itself(orders: Queue, place: int) -> None:
    lease, ids = orders.leased(10, 600)
    assert orders.settle("extend", lease, [ids[place]], 6000) == {ids[place]: "extended"}
    assert seconds_left(orders, f"where msg_id = {ids[place]}") == [6000]
    assert seconds_left(orders) == [600] * 9 + [6000]


def test_shorter_is_shorter(orders: Queue) -> None:
    lease, ids = orders.leased(3, 6000)
    orders.settle("extend", lease, ids[:1], 600, True)
    assert seconds_left(orders) == [600, 6000, 6000]


def test_what_was_held_is_still_of_its_lease(orders: Queue) -> None:
    lease, ids = orders.leased(6, 600)
    orders.settle("extend", lease, [ids[0]], 6000)
    orders.settle("extend", lease, [ids[3], ids[5]], 3000)
    orders.settle("extend", lease, [ids[1]], 12000)
    assert orders.rows("select attempt, lease_id from spanmq.receive('orders')") == []
    assert orders.settle("ack", lease, ids[:2]) == dict.fromkeys(ids[:2], "acked")
    assert set(orders.settle("extend", lease, ids[2:], 9000).values()) == {"extended"}
    assert seconds_left(orders) == [9000] * 4
    assert orders.settle("nack", lease, ids[2:4], "x", None, 30) == dict.fromkeys(ids[2:4], "retrying")
    assert orders.settle("extend", lease, ids, 60) == dict.fromkeys(ids[:4], "stale") | dict.fromkeys(
        ids[4:], "extended"
    )
    assert orders.settle("ack", lease, ids[4:]) == dict.fromkeys(ids[4:], "acked")


def test_message_that_was_held_for_less_comes_again_alone(orders: Queue) -> None:
    lease, ids = orders.leased(4, 600)
    orders.settle("extend", lease, [ids[2]], 60, True)
    change_state(orders.connection, "vt = vt - interval '1 minute'", "msg_id = %s", ids[2])
    assert orders.rows("select msg_id, read_ct from spanmq.receive('orders', 10)") == [(ids[2], 2)]
    assert orders.settle("extend", lease, ids, 60) == {
        each: "stale" if each == ids[2] else "extended" for each in ids
    }


def test_what_left_the_lease_one_by_one_does_not_come_back(orders: Queue) -> None:
    lease, ids = orders.leased(40, 60)
    for each in ids[1:30:3]:
        assert orders.value("select pgmq.delete('orders', %s::bigint)", each)
    done = orders.settle("extend", lease, ids[:20], 600)
    assert sorted(each for each, outcome in done.items() if outcome == "stale") == ids[1:20:3]
    assert orders.left() == [each for each in ids if each not in ids[1:30:3]]


def test_extend_finds_what_another_one_changes_meanwhile(race: Race) -> None:
    ids = race.send(6)
    lease = race.lease(6, 30)
    one, two = race.begun(), race.open()
    one.rows("select spanmq.extend(%s, %s, %s::bigint[], 60)", race.queue, lease, ids[:2])
    later = two.waiting("select outcome from spanmq.extend(%s, %s, %s, 600)", race.queue, lease, ids)
    one.end("commit")
    assert later.rows() == [("extended",)] * 6
    short = "select count(*) from spanmq_core.unsettled where vt < clock_timestamp() + interval '500 s'"
    assert race.main.rows(short) == [(0,)]


def test_follower_that_is_held_meanwhile_is_released_behind_what_failed(race: Race) -> None:
    race.main.rows("select spanmq.set_policy(%s, '{\"ordered\": true}')", race.queue)
    ids = race.send(6)
    lease = race.main.value("select lease_id from spanmq.receive(%s, 6, 30, 6)", race.queue)
    one, two = race.begun(), race.open()
    one.rows("select spanmq.extend(%s, %s, %s::bigint[], 600)", race.queue, lease, ids[3:4])
    later = two.waiting("select * from spanmq.nack(%s, %s, %s::bigint[], 'x')", race.queue, lease, ids[:1])
    one.end("commit")
    assert later.rows() == [(ids[0], "retrying")]
    assert race.main.rows("select count(*) from spanmq_core.unsettled where lease_id > 0") == [(0,)]
