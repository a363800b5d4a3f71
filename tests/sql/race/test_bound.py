"""Bounds stay below all that may yet come: what is committed late, comes back, or is published by another."""

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, Session

from spanmq import embedded, schema

MAINTAIN = "select count(*) from spanmq.maintain()"
READ = "select msg_id from pgmq.read('jobs', 30, 1000)"
RECEIVE = "select msg_id from spanmq.receive('jobs', 1000)"
SEND_SOON = "select pgmq.send('jobs', '1', clock_timestamp() + interval '0.1 s')"


def maintain(session: Session) -> None:
    """Call maintain() often enough for bounds to move: one call notes a mark, the next moves up to it."""
    for _ in range(3):
        session.rows(MAINTAIN)


def move_due(session: Session) -> None:
    """Call maintain() a second later, so that a wrong bound would be past what is due now."""
    now = session.value("select clock_timestamp()")
    while not session.value("select clock_timestamp() > %s::timestamptz + interval '1.2 s'", now):
        pass
    maintain(session)


def settle_one(race: Race) -> None:
    """Leave nothing in the queue, and ids behind."""
    race.send(1)
    race.main.rows("select * from pgmq.pop('jobs')")


@pytest.mark.parametrize("mover", ["itself", "another"])
@pytest.mark.parametrize("savepoint", [False, True])
def test_claim_that_is_rolled_back_gives_all_back(race: Race, mover: str, savepoint: bool) -> None:
    ids = race.send(200)
    one, two = race.open(), race.open()
    one.begin()
    if savepoint:
        one.rows("savepoint here")
    assert len(one.column("select msg_id from pgmq.read('jobs', 30, 155)")) == 155
    maintain(one if mover == "itself" else two)
    if savepoint:
        one.rows("rollback to here")
        one.commit()
    else:
        one.rollback()
    maintain(two)
    assert two.column(READ) == ids


def test_message_of_a_long_transaction_is_found(race: Race) -> None:
    settle_one(race)
    one, two = race.open(), race.open()
    one.begin()
    # Delayed or not: either way it is drawn before the mark.
    late = [one.value("select pgmq.send('jobs', '1')"), one.value("select pgmq.send('jobs', '1', 1)")]
    settle_one(race)
    maintain(two)
    move_due(two)
    one.commit()
    assert two.column(READ) == late


def test_old_snapshot_moves_nothing(race: Race) -> None:
    ids = race.send(5)
    one = race.open()
    one.begin("repeatable read")
    with pytest.raises(Exception, match="READ COMMITTED"):
        one.rows(MAINTAIN)
    one.rollback()
    assert race.main.column(READ) == ids


CLAIMS = {
    "read": "select from pgmq.read('jobs', 0, 1000)",
    "nack": "select spanmq.nack('jobs', lease_id, array[msg_id], retry_in => 0) from spanmq.receive('jobs', 15)",
    "set_vt": "select from pgmq.set_vt('jobs', array(select msg_id from pgmq.q_jobs), 0)",
}


@pytest.mark.parametrize("act", ["read", "nack", "set_vt"])
def test_message_that_is_due_before_it_is_committed_is_delivered_again(race: Race, act: str) -> None:
    ids = race.send(15)
    one, two = race.open(), race.open()
    one.begin()
    one.rows(CLAIMS[act])
    move_due(two)
    one.commit()
    assert sorted(two.column(READ)) == ids


@pytest.mark.parametrize("clock", ["goes on", "was set back"])
def test_message_that_is_made_due_in_the_past(race: Race, clock: str) -> None:
    move_due(race.main)
    for act in (
        "read('jobs', 0, 1)",
        "receive('jobs', 1, -9)",
        "receive('jobs', 3, -9)",
        "receive('jobs', 4, -9, 2)",
        "set_vt('jobs', array(select msg_id from pgmq.q_jobs), -9)",
    ):
        race.main.rows("select pgmq.purge_queue('jobs')")
        ids = race.send(4)
        if clock == "was set back":
            # All that has been noted seems to lie an hour ahead.
            ahead = "clock_timestamp() + interval '1 hour'"
            race.main.rows(f"update spanmq_core.bound set due_from = {ahead}, mark_at = {ahead}")
        race.main.rows(f"select from {qualified(act)}")
        assert race.main.column(READ) == ids


def test_delay_that_is_over_before_the_message_is_written(race: Race) -> None:
    guard, one, two = race.open(), race.open(), race.open()
    guard.begin()
    guard.rows("lock table spanmq_core.held in share mode")
    # Again where the delay was over so early that it counted for none.
    while not (sending := one.later(SEND_SOON)).waits():
        two.rows("select pgmq.purge_queue('jobs')")
    move_due(two)
    maintain(two)
    guard.commit()
    sent = [row[0] for row in sending.rows()]
    assert two.column(READ) == sent


def test_blocks_that_are_published_while_the_bound_moves(race: Race) -> None:
    race.main.rows("alter function spanmq.maintain(integer) reset lock_timeout")
    one, two, three = race.open(), race.open(), race.open()
    ((write, block, log, first, last, _),) = one.rows("select * from spanmq.bulk_reserve('jobs', 'w', 1, 5)")
    one.rows(f"insert into spanmq_core.{log} select i, now(), '1' from generate_series({first}, {last}) i")
    one.rows("select spanmq.bulk_seal('jobs', %s)", [block])
    settle_one(race)
    maintain(two)
    three.begin()
    three.rows("select spanmq.bulk_publish('jobs', 'w', 1, %s, %s)", write, [block])
    three.rows("lock table spanmq_core.bulk_block in access exclusive mode")
    moving = two.later(MAINTAIN)
    assert moving.waits()
    three.commit()
    moving.rows()
    maintain(two)
    assert two.column(READ) == list(range(first, last + 1))


def test_maintenance_cuts_runs_whose_lease_ran_out(race: Race) -> None:
    race.send(200)
    race.lease(200, -1)
    one, two = race.open(), race.open()
    maintain(two)
    one.begin()
    one.rows("select * from pgmq.read('jobs', 30, 1)")
    assert len(two.column(READ)) >= 190
    one.rollback()
    assert len(two.column(READ)) == 10


def test_priority_that_is_sent_while_a_claim_looks(race: Race) -> None:
    guard, one, two = race.open(), race.open(), race.open()
    guard.begin()
    guard.rows("lock table spanmq_core.held in access exclusive mode")
    claiming = one.later("select msg_id from spanmq.receive('jobs')")
    assert claiming.waits()
    high = two.column("select spanmq.send_messages('jobs', array['1', '2', '3']::jsonb[], priority => 5)")
    higher = two.column("select spanmq.send_messages('jobs', array['1', '2', '3']::jsonb[], priority => 3)")
    guard.commit()
    got = [row[0] for row in claiming.rows()]
    assert got + two.column(RECEIVE) == high + higher


@pytest.mark.parametrize("act", ["send", "lease"])
def test_transaction_that_is_prepared_and_outlives_the_server(act: str) -> None:
    with embedded.temporary(settings={"max_prepared_transactions": "5", "fsync": "off"}) as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
        with Race(server.dsn) as race:
            ids = race.send(3) if act == "lease" else []
            other = race.open()
            other.begin()
            ids += other.column(
                "select pgmq.send('jobs', '1')"
                if act == "send"
                else "select msg_id from pgmq.read('jobs', 0, 3)"
            )[len(ids) :]
            settle_one(race)
            move_due(race.main)
            other.rows("prepare transaction 'other'")
        server.restart()
        with Race(server.dsn) as race:
            maintain(race.main)
            race.main.rows("commit prepared 'other'")
            assert race.main.column(READ) == ids
