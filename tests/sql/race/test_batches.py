"""The last messages of a batch are settled at the same time: it ends, and once."""

import pytest
from tests.sql.race.sessions import Race

ENDS = "select message from pgmq.pop('ends', 100)"
OPEN = "select count(*) from spanmq.list_batches() where ended_at is null"


def make_batch(race: Race, n: int) -> tuple[list[int], int]:
    race.main.rows("select pgmq.create('ends')")
    ids = race.send(n)
    race.main.rows(
        "select spanmq.add_to_batch('jobs', spanmq.create_batch('ends', '1'), %s::bigint[])"
        " from (select) as one_transaction",
        ids,
    )
    return ids, race.lease(n)


@pytest.mark.parametrize("fates", [("commit", "commit"), ("commit", "rollback"), ("rollback", "commit")])
def test_two_that_settle_the_last_messages_end_the_batch_once(race: Race, fates: tuple[str, str]) -> None:
    ids, lease = make_batch(race, 2)
    sessions = race.open(), race.open()
    for session, each in zip(sessions, ids, strict=True):
        session.begin()
        later = session.later("select spanmq.ack('jobs', %s, array[%s]::bigint[])", lease, each)
        assert not later.waits()
    for session, fate in zip(sessions, fates, strict=True):
        session.end(fate)
    # Neither saw the other's: maintain() ends it.
    race.main.rows("select spanmq.maintain()")
    if "rollback" in fates:
        assert race.main.column(ENDS) == []
        race.main.rows("select spanmq.ack('jobs', %s, %s)", lease, ids)
    assert (race.main.column(ENDS), race.main.value(OPEN)) == ([1], 0)
    race.main.rows("select spanmq.maintain()")
    assert race.main.column(ENDS) == []


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_nobody_waits_for_who_ends_a_batch(race: Race, fate: str) -> None:
    ids, lease = make_batch(race, 1)
    one, two = race.begun(), race.open()
    one.rows("select spanmq.ack('jobs', %s, %s)", lease, ids)
    later = two.later("select * from spanmq.maintain()")
    assert not later.waits()
    one.end(fate)
    if fate == "rollback":
        race.main.rows("select pgmq.purge_queue('jobs')")
    race.main.rows("select spanmq.maintain()")
    assert race.main.column(ENDS) == [1]


def test_two_maintainers_end_a_batch_once(race: Race) -> None:
    make_batch(race, 3)
    race.main.rows("select pgmq.purge_queue('jobs')")
    one, two = race.begun(), race.open()
    assert one.column("select action from spanmq.maintain()") == ["ended batch"]
    later = two.later("select action from spanmq.maintain()")
    assert not later.waits()
    one.commit()
    assert ("ended batch",) not in later.rows()
    assert race.main.column(ENDS) == [1]


def test_settlement_does_not_wait_for_the_queue_of_the_end(race: Race) -> None:
    ids, lease = make_batch(race, 1)
    other = race.begun()
    other.rows("select pgmq.drop_queue('ends')")
    assert race.main.rows("select spanmq.ack('jobs', %s, %s)", lease, ids)
    other.rollback()
    race.main.rows("select spanmq.maintain()")
    assert race.main.column(ENDS) == [1]


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_old_snapshot_ends_no_batch_that_it_does_not_see_whole(race: Race, isolation: str) -> None:
    ids, lease = make_batch(race, 2)
    old = race.open()
    old.begin(isolation)
    old.rows("select 1 from pgmq.q_jobs")
    race.main.rows("select spanmq.ack('jobs', %s, %s)", lease, ids[:1])
    old.rows("select spanmq.ack('jobs', %s, %s)", lease, ids[1:])
    old.commit()
    race.main.rows("select spanmq.maintain()")
    assert race.main.column(ENDS) == [1]
