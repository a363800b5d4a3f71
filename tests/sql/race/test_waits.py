"""Who waits for whom, and who must not."""

from functools import partial

import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, side_by_side


def test_deletes_of_different_messages_of_a_lease_do_not_wait(race: Race) -> None:
    ids = race.send(30)
    race.lease(30)
    sessions = [race.open() for _ in ids]
    for session, each in zip(sessions, ids, strict=True):
        session.begin()
        later = session.later("select pgmq.delete(%s, %s::bigint)", race.queue, each)
        assert not later.waits()
        assert later.rows() == [(True,)]
    for session in sessions:
        session.commit()
    assert race.left() == []


@pytest.mark.parametrize("n", [2, 6, 40])
def test_last_two_deletes_together_leave_nothing_behind(race: Race, n: int) -> None:
    ids = race.send(n)
    race.lease(n)
    race.main.rows("select pgmq.delete(%s, id) from unnest(%s::bigint[]) id", race.queue, ids[1:-1])
    one, two = race.open(), race.open()
    for session, each in ((one, ids[0]), (two, ids[-1])):
        session.begin()
        assert session.value("select pgmq.delete(%s, %s::bigint)", race.queue, each)
    one.commit()
    two.commit()
    assert race.left() == []
    assert race.main.value("select queue_length from pgmq.metrics(%s)", race.queue) == 0
    assert race.main.value("select count(*) from spanmq_core.unsettled") == 0


def test_last_delete_waits_for_nobody_who_looks_for_what_is_settled(race: Race) -> None:
    ids = race.send(6)
    race.lease(6)
    race.main.rows("select pgmq.delete(%s, id) from unnest(%s::bigint[]) id", race.queue, ids[:-1])
    one, two = race.begun(), race.open()
    assert not one.value("select pgmq.delete(%s, %s::bigint)", race.queue, ids[0])
    later = two.later("select pgmq.delete(%s, %s::bigint)", race.queue, ids[-1])
    assert not later.waits()
    assert later.rows() == [(True,)]
    one.commit()
    assert race.left() == []


def test_messages_that_came_back_are_claimed(race: Race) -> None:
    ids = race.send(6)
    race.lease(6)
    race.main.rows("select pgmq.set_vt(%s, %s::bigint[], 0)", race.queue, ids[1:3])
    assert race.main.column("select msg_id from pgmq.read(%s, 30, 10)", race.queue) == ids[1:3]
    assert sorted(race.main.column("select pgmq.archive(%s, %s::bigint[])", race.queue, ids)) == ids
    assert race.left() == []
    assert race.main.value("select count(*) from spanmq_core.unsettled") == 0


def test_settles_in_any_order_do_not_deadlock(race: Race) -> None:
    # Single calls, each with its ids in an order of its own, beside those of the others.
    def settle(number: int) -> None:
        session = race.open()
        for ids in rounds:
            mine = ids[number::4][:: (1, -1)[number % 2]]
            session.rows("select pgmq.delete(%s, %s::bigint[])", race.queue, mine)

    rounds = []
    for _ in range(12):
        rounds.append(race.send(60, new_block=False))
        race.lease(17)
    side_by_side(*(partial(settle, number) for number in range(4)))
    assert race.left() == []


@pytest.mark.parametrize("was_leased", [False, True])
def test_open_claim_holds_back_what_it_took_alone(race: Race, was_leased: bool) -> None:
    ids = race.send(1000)
    if was_leased:
        race.lease(1000, -1)
    one, two = race.begun(), race.open()
    one.rows("select * from pgmq.read(%s, 30, 10)", race.queue)
    assert two.column("select msg_id from pgmq.read(%s, 30, 2000)", race.queue) == ids[10:]
    one.rollback()


# Somebody holds a row. Of the two who come to it, none may hold already what the other wants next.
@pytest.mark.parametrize("table", ["state", "later"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("purge_queue('jobs')", "delete('jobs', array[1, 13]::bigint[])"),
        ("delete('jobs', array[1, 3, 13, 17]::bigint[])", "delete('jobs', array[17, 13, 3, 2]::bigint[])"),
        (
            "set_vt('jobs', array[1, 2, 3, 4, 5, 6, 7, 13], 9)",
            "set_vt('jobs', array[3, 4, 5, 6, 7, 8, 9, 13, 10], 9)",
        ),
        ("delete('jobs', array[1, 3, 13, 17]::bigint[])", "archive('jobs', array[20, 13, 3]::bigint[])"),
    ],
)
def test_overlapping_settles_do_not_deadlock(race: Race, table: str, first: str, second: str) -> None:
    ids = race.send(20, new_block=False)
    if table == "later":
        # The others are in state, and have higher ids.
        race.give_back(ids[:15])
    race.lease(4)
    race.lease(6)
    guard, one, two = race.begun(), race.open(), race.open()
    guard.rows("select pgmq.set_vt('jobs', array[3, 13], 60)")
    waiting = []
    for session, call in ((one, first), (two, second)):
        waiting.append(session.later(f"select {qualified(call)}"))
        assert waiting[-1].waits()
    guard.commit()
    for each in waiting:
        each.rows()


@pytest.mark.parametrize("act", ["delete('jobs', {}::bigint[])", "set_vt('jobs', {}::bigint[], 0)"])
@pytest.mark.parametrize("is_given_back", [False, True])
def test_settles_of_messages_that_moved_do_not_deadlock(race: Race, act: str, is_given_back: bool) -> None:
    ids = race.send(10, new_block=False)
    if is_given_back:
        race.give_back(ids)
    mover, guard, one, two = race.begun(), race.begun(), race.open(), race.open()
    lease = race.lease(10)
    mover.rows("select spanmq.nack('jobs', %s, %s, retry_in => 0)", lease, ids[:2])
    guard.rows("select pgmq.set_vt('jobs', 9, 60)")
    one_waits = one.waiting(f"select {qualified(act.format(chr(39) + '{1,2,5,9}' + chr(39)))}")
    mover.commit()
    one.waits_for(guard)
    # It has passed those that moved, and holds others: who comes now must not be waited for by it.
    two_waits = two.later(f"select {qualified(act.format(chr(39) + '{1,5}' + chr(39)))}")
    two_waits.waits()
    guard.commit()
    one_waits.rows()
    two_waits.rows()


@pytest.mark.parametrize(
    ("call", "n"), [("pgmq.set_vt('jobs', '{2, 16}'::bigint[], 60)", 2), ("pgmq.purge_queue('jobs')", 20)]
)
@pytest.mark.parametrize("table", ["state", "later"])
def test_locks_go_by_ids(race: Race, call: str, n: int, table: str) -> None:
    ids = race.send(20, new_block=False)
    if table == "later":
        race.give_back(ids)
    one, two = race.begun(), race.open()
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[1])
    waiting = two.waiting(f"select {call}")
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[15])
    one.commit()
    found = waiting.rows()
    assert (found == [(20,)] and race.left() == []) if n == 20 else len(found) == n
