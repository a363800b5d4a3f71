"""A purge and what comes in that instant: it stays, and its state is told as that of any message."""

import pytest
from tests.sql.race.sessions import Race


def status(race: Race, *ids: int) -> list[str]:
    return race.main.column("select spanmq.state('jobs', id) from unnest(%s::bigint[]) id", list(ids))


def finish(race: Race) -> list[int]:
    return race.main.column(
        "select m.msg_id from spanmq.receive('jobs', 100) m, spanmq.ack('jobs', m.lease_id, array[m.msg_id])"
    )


def test_message_committed_after_the_last_look_is_completed_later(race: Race) -> None:
    (settled,) = race.send(1)
    finish(race)
    (purged,) = race.send(1, new_block=False)
    sender = race.begun()
    (late,) = sender.column("select pgmq.send('jobs', '1')")
    (younger,) = race.send(1, new_block=False)
    assert race.main.value("select pgmq.purge_queue('jobs')") == 2
    sender.commit()
    assert status(race, settled, purged, late, younger) == ["unknown", "unknown", "pending", "unknown"]
    assert finish(race) == [late]
    assert status(race, settled, purged, late, younger) == ["unknown", "unknown", "completed", "unknown"]
    # The next purge has seen it.
    race.send(1, new_block=False)
    race.main.rows("select pgmq.purge_queue('jobs')")
    assert status(race, late) == ["unknown"]


def test_bulk_write_published_after_the_last_look_is_completed_later(race: Race) -> None:
    write, block, first, last = race.reserve(2)
    (purged,) = race.send(1)
    assert race.main.value("select pgmq.purge_queue('jobs')") == 1
    publish = "select spanmq.bulk_publish('jobs', 'w', 0, %s::bigint, array[%s::bigint])"
    assert race.main.value(publish, write, block) == 2
    assert finish(race) == [first, last]
    assert status(race, first, last, purged) == ["completed", "completed", "unknown"]


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_what_a_transaction_sends_and_purges_is_unknown(race: Race, fate: str) -> None:
    (before,) = race.send(1)
    race.main.begin()
    (own,) = race.send(1)
    assert race.main.value("select pgmq.purge_queue('jobs')") == 2
    (after,) = race.send(1)
    assert finish(race) == [after]
    assert status(race, before, own, after) == ["unknown", "unknown", "completed"]
    race.main.end(fate)
    expected = {"commit": ["unknown", "unknown", "completed"], "rollback": ["pending", "unknown", "unknown"]}
    assert status(race, before, own, after) == expected[fate]


def test_numbers_of_another_server_tell_nothing(race: Race) -> None:
    (purged,) = race.send(1)
    race.main.rows("select pgmq.purge_queue('jobs')")
    race.main.rows("update spanmq_core.upkeep set purged_on = 1, purged_in = '3:3:'")
    assert status(race, purged) == ["unknown"]


@pytest.mark.parametrize("act", ["pgmq.read('jobs', 30, 2)", "pgmq.set_vt('jobs', q.msg_id, 9)"])
@pytest.mark.parametrize("state", ["fresh", "expired"])
def test_purge_takes_what_another_moved_while_it_waited(race: Race, state: str, act: str) -> None:
    race.send(6)
    if state == "expired":
        race.lease(6, -1)
    mover, purger = race.begun(), race.open()
    mover.rows(f"select from (select * from pgmq.q_jobs order by msg_id limit 1) q, {act}")
    purging = purger.waiting("select pgmq.purge_queue('jobs')")
    mover.commit()
    assert (purging.rows(), race.left()) == ([(6,)], [])


@pytest.mark.parametrize("is_given_back", [False, True])
def test_purge_and_settlements_in_order_do_not_deadlock(race: Race, is_given_back: bool) -> None:
    # Both lock the first one first.
    ids = race.send(20)
    if is_given_back:
        race.give_back(ids)
    one, two = race.begun(), race.open()
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[0])
    purge = two.waiting("select pgmq.purge_queue('jobs')")
    one.rows("select pgmq.set_vt('jobs', %s::bigint, 60)", ids[-1])
    one.commit()
    assert purge.rows() == [(20,)]
