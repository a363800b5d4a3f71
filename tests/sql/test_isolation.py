"""Callers with an old snapshot get a clean serialization failure at worst: nothing twice, nothing lost."""

import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race

OLD = ["repeatable read", "serializable"]
READ = "select msg_id from pgmq.read('jobs', 30, 10)"
DELETE = "select pgmq.delete('jobs', 4)"
ONE_MORE = """select spanmq.set_policy('jobs', '{"max_in_flight": 1}'), pgmq.send('jobs', '11')"""
# What is done before the snapshot, and after it by another session; what then fails in it; what can be read later.
FAILURES = {
    "claim of what another took": (None, "select pgmq.read('jobs', 30, 5)", READ, "40001", range(6, 11)),
    "delete of what left its lease": (READ, DELETE, "select pgmq.delete('jobs', array[3, 4])", "40001", []),
    "claim of a lease that ran out, and a message left": (
        "select pgmq.read('jobs', 0, 10)",
        DELETE,
        READ,
        "40001",
        [1, 2, 3, *range(5, 11)],
    ),
    "grouped read": (None, None, "select pgmq.read_grouped('jobs', 30, 1)", "MQ003", range(1, 11)),
    "maintain": (None, None, "select spanmq.maintain()", "MQ003", range(1, 11)),
    "limit in flight": (ONE_MORE, "select pgmq.read('jobs', 30, 10, '11')", READ, "MQ003", []),
}


@pytest.mark.parametrize("isolation", OLD)
@pytest.mark.parametrize("name", FAILURES)
def test_old_snapshot_fails_cleanly(race: Race, name: str, isolation: str) -> None:
    before, meanwhile, call, sqlstate, later = FAILURES[name]
    race.send(10, new_block=False)
    old = race.open()
    race.main.rows(before or "select 1")
    old.begin(isolation)
    old.rows("select count(*) from pgmq.q_jobs")
    assert race.main.rows(meanwhile or "select 1")
    assert sqlstate_of(old.connection, call) == sqlstate
    old.rollback()
    assert len(race.left()) == 10 + (before == ONE_MORE) - (meanwhile == DELETE)
    assert old.column(READ) == list(later)


@pytest.mark.parametrize("isolation", OLD)
def test_whole_cycle_works_in_an_old_snapshot(race: Race, isolation: str) -> None:
    race.send(10, new_block=False)
    old = race.open()
    old.begin(isolation)
    old.rows("select pgmq.send('jobs', '{}')")
    assert len(old.rows("select * from pgmq.read('jobs', 30, 100)")) == 11
    assert len(old.rows("select * from pgmq.delete('jobs', array[1, 2, 11])")) == 3
    old.commit()
    assert len(race.left()) == 8


def test_read_uncommitted_is_read_committed(race: Race) -> None:
    race.send(10, new_block=False)
    session = race.open()
    session.begin("read uncommitted")
    session.rows("select count(*) from pgmq.q_jobs")
    race.main.rows("select pgmq.delete('jobs', 1)")
    assert session.column("select msg_id from pgmq.read_grouped('jobs', 30, 2)") == [2, 3]
    session.rows("select spanmq.create_subscription('copy', 'jobs')")
    session.rows("select * from spanmq.maintain()")
    session.commit()


SETTLEMENTS = ("ack(%s)", "nack(%s)", "reject(%s)", "release(%s)", "extend(%s, 60)")


@pytest.mark.parametrize("isolation", OLD)
@pytest.mark.parametrize("is_sent_before", [True, False])
def test_settlement_of_a_lease_that_the_snapshot_does_not_show_fails(
    race: Race, isolation: str, is_sent_before: bool
) -> None:
    """Stale would say that the lease no longer holds the message."""
    if is_sent_before:
        race.send(1, new_block=False)
    old = race.open()
    old.begin(isolation)
    old.rows("select count(*) from pgmq.q_jobs")
    if not is_sent_before:
        race.send(1, new_block=False)
    [(lease, id_)] = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs')")
    for settlement in SETTLEMENTS:
        call = settlement % f"'jobs', {lease}, '{{{id_}}}'"
        assert sqlstate_of(old.connection, f"select * from spanmq.{call}") == "40001"
    old.rollback()
    assert old.rows("select * from spanmq.ack('jobs', %s, %s)", lease, [id_]) == [(id_, "acked")]


@pytest.mark.parametrize("isolation", OLD)
def test_what_an_old_snapshot_shows_to_be_settled_is_stale(race: Race, isolation: str) -> None:
    race.send(2, new_block=False)
    [(former, taken)] = race.main.rows("select lease_id, msg_id from spanmq.receive('jobs', 1, 0)")
    race.main.rows("select spanmq.receive('jobs', 1, 60)")
    old = race.open()
    old.begin(isolation)
    [(lease, id_)] = old.rows("select lease_id, msg_id from spanmq.receive('jobs')")
    ack = "select * from spanmq.ack('jobs', %s, %s)"
    assert old.rows(ack, lease, [id_, id_]) == [(id_, "acked")]
    assert old.rows(ack, lease, [id_]) == [(id_, "stale")]
    assert old.rows(ack, former, [taken]) == [(taken, "stale")]
    old.commit()
