"""Who waits for whom, and who must not."""

from functools import partial

import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, side_by_side


def notes_of(race: Race) -> int:
    return int(race.main.value("select count(*) from spanmq_core.done"))


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
    # Neither saw the other's note, so the empty run still stands; maintain() takes it away.
    assert race.left() == []
    assert race.main.value("select queue_length from pgmq.metrics(%s)", race.queue) == 0
    race.main.rows("select * from spanmq.maintain()")
    assert (race.runs(), notes_of(race)) == ([], 0)


def test_last_delete_waits_for_nobody_who_looks_at_the_run(race: Race) -> None:
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
    assert (race.left(), race.runs(), notes_of(race)) == ([], [], 0)


def test_settles_in_any_order_do_not_deadlock(race: Race) -> None:
    # Single calls, each with its ids in an order of its own, over runs that all of them touch.
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


def test_open_claim_holds_back_what_it_took_and_at_most_nine_more(race: Race) -> None:
    race.send(1000)
    one, two = race.begun(), race.open()
    one.rows("select * from pgmq.read(%s, 30, 10)", race.queue)
    got = two.column("select msg_id from pgmq.read(%s, 30, 2000)", race.queue)
    assert len(got) >= 1000 - 10 - 9
    one.rollback()


# Somebody holds the first row. Of the two who come to it, none may hold already what the other wants next.
@pytest.mark.parametrize(
    ("held", "first", "second"),
    [
        ("hidden", "purge_queue('jobs')", "delete('jobs', array[1, 11]::bigint[])"),
        (
            "leased",
            "set_vt('jobs', array[1, 2, 3, 4, 5, 6, 7], 9)",
            "set_vt('jobs', array[3, 4, 5, 6, 7, 8, 9, 10], 9)",
        ),
    ],
)
def test_overlapping_settles_do_not_deadlock(race: Race, held: str, first: str, second: str) -> None:
    race.send(20, new_block=False)
    if held == "hidden":
        race.main.rows("select pgmq.set_vt('jobs', array(select generate_series(11, 20)), 60)")
    else:
        race.lease(4)
        race.lease(6)
    guard, one, two = race.begun(), race.open(), race.open()
    guard.rows("select from spanmq_core.held order by lo limit 1 for update")
    waiting = []
    for session, call in ((one, first), (two, second)):
        waiting.append(session.later(f"select {qualified(call)}"))
        assert waiting[-1].waits()
    guard.commit()
    for each in waiting:
        each.rows()


@pytest.mark.parametrize(
    "mine",
    [[5, 25], [*range(1, 31)], [*range(1, 11), *range(21, 31)]],
    ids=["parts", "all in a row", "whole runs"],
)
def test_settles_of_a_run_that_moved_do_not_deadlock(race: Race, mine: list[int]) -> None:
    ids = race.send(30, new_block=False)
    hide = "select from pgmq.set_vt('jobs', %s::bigint[], 0)"
    # Three runs of ten.
    race.main.rows(hide, ids)
    mover, guard, one, two = (race.open() for _ in range(4))
    mover.begin()
    mover.rows(hide, ids[:3])
    guard.begin()
    guard.rows("select from spanmq_core.held order by lo desc limit 1 for update")
    waiting = [one.later(hide, mine)]
    assert waiting[0].waits()
    mover.commit()
    # It comes to the first run again, in its new place, before it goes on to the last.
    one.waits_for(guard)
    waiting.append(two.later(hide, [6, 26]))
    assert waiting[1].waits()
    guard.commit()
    for each in waiting:
        each.rows()


@pytest.mark.parametrize("table", ["fresh", "held"])
def test_settles_of_a_run_that_was_cut_do_not_deadlock(race: Race, table: str) -> None:
    ids = race.send(30, new_block=False)
    if table == "held":
        race.main.rows("select from pgmq.set_vt('jobs', %s::bigint[], 0)", ids)
    first, last, one, two = (race.open() for _ in range(4))
    for guard, lo in ((first, 1), (last, 21)):
        guard.begin()
        guard.rows(f"select from spanmq_core.{table} where lo = {lo} for update")
    waiting = [one.later("select pgmq.delete('jobs', '{3, 17, 25}'::bigint[])")]
    assert waiting[0].waits()
    # The second run still begins where it did when the call looked, and has lost 17 to another.
    race.main.rows("select pgmq.delete('jobs', 15)")
    first.commit()
    one.waits_for(last)
    waiting.append(two.later("select pgmq.delete('jobs', '{18, 26}'::bigint[])"))
    assert waiting[1].waits()
    last.commit()
    for each in waiting:
        each.rows()
    assert sorted(set(ids) - set(race.left())) == [3, 15, 17, 18, 25, 26]


@pytest.mark.parametrize(
    ("call", "n"), [("pgmq.set_vt('jobs', '{2, 16}'::bigint[], 60)", 2), ("pgmq.purge_queue('jobs')", 20)]
)
def test_locks_go_by_ids_whether_messages_are_fresh_or_held(race: Race, call: str, n: int) -> None:
    # Two runs, of which the first is fresh and the second is held.
    ids = race.send(20, new_block=False)
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint[], 0)", ids[10:])
    one, two = race.begun(), race.open()
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[0])
    waiting = two.waiting(f"select {call}")
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[16])
    one.commit()
    found = waiting.rows()
    assert (found == [(20,)] and race.left() == []) if n == 20 else len(found) == n


def test_delete_of_a_fresh_message_locks_no_leased_run_before_it(race: Race) -> None:
    race.send(20, new_block=False)
    race.lease(10)
    one, two = race.begun(), race.open()
    one.rows("select pgmq.set_vt('jobs', 18::bigint, 60)")
    waiting = two.waiting("select pgmq.set_vt('jobs', '{1, 14}'::bigint[], 60)")
    # The first run is that session's.
    assert one.value("select pgmq.delete('jobs', 15)")
    one.commit()
    assert len(waiting.rows()) == 2
