"""Bounds stay below all that may yet come: what is committed late, comes back, or is published by another."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.patience import wait_until
from tests.schemas import qualified
from tests.sql.queue import change_state
from tests.sql.race.sessions import Race, Session

from spanmq import embedded, schema

MAINTAIN = "select count(*) from spanmq.maintain()"
READ = "select msg_id from pgmq.read('jobs', 30, 1000)"
RECEIVE = "select msg_id from spanmq.receive('jobs', 1000)"
SEND_SOON = "select pgmq.send('jobs', '1', clock_timestamp() + interval '0.1 s')"
# As if the transaction had been open for an hour: a wrong bound would be past what is due.
LONG_AGO = "vt = vt - interval '1 hour'"
# What opens the transaction of a sender, and what is in the queue when it has committed.
SENDS = {
    "one": "pgmq.send('jobs', '1')",
    "in a group": "pgmq.send('jobs', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)",
    "a batch": "pgmq.send_batch('jobs', array_fill('1'::jsonb, array[2]))",
    "a large batch": "pgmq.send_batch('jobs', array_fill('1'::jsonb, array[30]))",
    "with a dedup_id": "spanmq.send_messages('jobs', array['1'::jsonb],"
    " dedup_ids => array[gen_random_uuid()::text])",
    "later": "pgmq.send('jobs', '1', clock_timestamp())",
}
# Each brings rows that are visible at once, or have been so for long.
RETURNS = {
    "read one": "select pgmq.read('jobs', -100, 1)",
    "read": "select pgmq.read('jobs', -100, 3)",
    "read a part": "select pgmq.read('jobs', -100, 2)",
    "receive": "select spanmq.receive('jobs', 3, -100)",
    "receive in slots": "select spanmq.receive('jobs', 3, -100, 3)",
    "read in groups": "select pgmq.read_grouped('jobs', -100, 3)",
    "set_vt": "select pgmq.set_vt('jobs', array[{ids}], clock_timestamp() - interval '1 hour')",
    "nack": "select spanmq.nack('jobs', lease_id, array[msg_id], retry_in => 0) from spanmq.receive('jobs', 3)",
    "release": "select spanmq.release('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 3)",
    "send": "select pgmq.send_batch('jobs', array['1'::jsonb], clock_timestamp() - interval '1 hour')",
}


def maintain(session: Session) -> None:
    """Call maintain() often enough for bounds to move: one call notes a mark, the next moves up to it."""
    for _ in range(3):
        session.rows(MAINTAIN)


def settle_one(race: Race) -> None:
    """Leave nothing in the queue, and ids behind."""
    race.send(1)
    race.main.rows("select * from pgmq.pop('jobs')")


@pytest.mark.parametrize("mover", ["itself", "another"])
@pytest.mark.parametrize("savepoint", [False, True])
def test_claim_that_is_rolled_back_gives_all_back(race: Race, mover: str, savepoint: bool) -> None:
    ids = race.send(200)
    one, two = race.begun(), race.open()
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
@pytest.mark.parametrize("is_given_back", [False, True])
def test_message_that_is_due_before_it_is_committed_is_delivered_again(
    race: Race, act: str, is_given_back: bool
) -> None:
    ids = race.send(15)
    if is_given_back:
        race.give_back(ids)
    one, two = race.begun(), race.open()
    one.rows(CLAIMS[act])
    change_state(one.connection, LONG_AGO)
    maintain(two)
    one.commit()
    assert sorted(two.column(READ)) == ids


def test_message_that_is_made_due_in_the_past_after_the_clock_was_set_back(race: Race) -> None:
    maintain(race.main)
    for act in (
        "read('jobs', 0, 1)",
        "receive('jobs', 1, -900)",
        "receive('jobs', 3, -900)",
        "receive('jobs', 4, -900, 2)",
        "set_vt('jobs', array(select msg_id from pgmq.q_jobs), -900)",
    ):
        race.main.rows("select pgmq.purge_queue('jobs')")
        ids = race.send(4)
        # All that has been noted seems to lie an hour ahead.
        ahead = "clock_timestamp() + interval '1 hour'"
        race.main.rows(f"update spanmq_core.bound set due_from = {ahead}, mark_at = {ahead}")
        race.main.rows(f"select from {qualified(act)}")
        assert race.main.column(READ) == ids


ACTS_AFTER_THE_CLOCK = {
    "read one": "select pgmq.read('jobs', -900, 1)",
    "read": "select pgmq.read('jobs', -900, 10)",
    "receive one": "select spanmq.receive('jobs', 1, -900)",
    "receive": "select spanmq.receive('jobs', 10, -900)",
    "receive in slots": "select spanmq.receive('jobs', 10, -900, 2)",
    "set_vt": "select pgmq.set_vt('jobs', array(select msg_id from pgmq.q_jobs), -900)",
    "nack": "select spanmq.nack('jobs', lease_id, array[msg_id], retry_in => 0) from spanmq.receive('jobs', 10)",
    "release": "select spanmq.release('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 10)",
    "send": "select pgmq.send('jobs', '1', clock_timestamp() + interval '1 ms')",
    "send a batch": "select pgmq.send_batch('jobs', array['1'::jsonb], clock_timestamp() + interval '1 ms')",
}
BELOW = (
    "select count(*) from spanmq_core.later h"
    " where h.vt < (spanmq_core.bound_of(h.queue_id)).due_from or h.vt < clock_timestamp() - interval '900 s'"
)


def set_clock_back(race: Race, seconds: int = 3600) -> None:
    """Leave the bound as the steps before a clock that was set back by so much."""
    ahead = f"clock_timestamp() + interval '{seconds} s'"
    race.main.rows(f"update spanmq_core.bound set due_from = {ahead}, mark_at = {ahead}")
    race.main.rows(
        f"select setval('spanmq_core.latest_mark', (extract(epoch from {ahead}) * 1000000)::bigint)"
    )


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("act", ACTS_AFTER_THE_CLOCK)
def test_what_is_written_after_the_clock_was_set_back_is_found(race: Race, level: str, act: str) -> None:
    ids = race.send(4)
    maintain(race.main)
    set_clock_back(race)
    one = race.open()
    one.begin(level)
    one.rows(ACTS_AFTER_THE_CLOCK[act])
    one.commit()
    assert race.main.value(BELOW) == 0
    assert race.main.column(READ)[:4] == ids
    assert [*race.main.column(READ), *race.left()] == race.left()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_snapshot_from_before_the_clock_was_set_back_writes_nothing(race: Race, level: str) -> None:
    ids = race.send(4)
    maintain(race.main)
    one = race.open()
    one.begin(level)
    one.rows("select from spanmq_core.bound")
    # The steps that others make until the clock is set back are not in its snapshot.
    race.main.rows(
        "with before as (delete from spanmq_core.bound returning *)"
        " insert into spanmq_core.bound (queue_id, number, from_id, due_from)"
        " select queue_id, nextval('spanmq_core.bound_number'), from_id, due_from from before"
    )
    set_clock_back(race)
    with pytest.raises(psycopg.errors.SerializationFailure):
        one.rows(ACTS_AFTER_THE_CLOCK["receive"])
    one.rollback()
    assert race.main.column(READ) == ids


def test_no_step_passes_what_is_being_written_after_the_clock_was_set_back(race: Race) -> None:
    ids = race.send(20)
    maintain(race.main)
    set_clock_back(race)
    one, two = race.begun(), race.begun()
    one.rows("select pgmq.read('jobs', -900, 10)")
    two.rows("select pgmq.read('jobs', -900, 10)")
    # The clock passes the mark again, and no transaction that was noted is open.
    race.main.rows(
        "update spanmq_core.bound set due_from = '-infinity', mark_at = clock_timestamp(), holders = '{}'"
    )
    maintain(race.main)
    one.commit()
    maintain(race.main)
    two.commit()
    assert race.main.value(BELOW) == 0
    assert race.main.column(READ) == ids


def step(session: Session, race: Race, seconds: int) -> None:
    """Move the bound as a claim does whose clock is ahead by so much."""
    session.rows(
        "select spanmq_core.step_bound(%(queue)s, 0, (clock_timestamp() + make_interval(secs => %(ahead)s),"
        " m.set_backs, m.senders, m.holders)), setval('spanmq_core.latest_mark',"
        "  (extract(epoch from clock_timestamp()) * 1000000)::bigint + %(ahead)s * 1000000)"
        " from spanmq_core.note_mark() m",
        {"queue": race.queue_id, "ahead": seconds},
    )


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
@pytest.mark.parametrize("act", ACTS_AFTER_THE_CLOCK)
def test_step_that_is_not_committed_when_the_clock_is_set_back(race: Race, level: str, act: str) -> None:
    ids = race.send(10)
    maintain(race.main)
    stepping, writing = race.begun(), race.open()
    step(stepping, race, 100)
    writing.begin(level)
    writing.rows(ACTS_AFTER_THE_CLOCK[act])
    stepping.commit()
    # The clock passes the mark again while what was written is not committed.
    step(race.main, race, 101)
    step(race.main, race, 102)
    writing.commit()
    assert race.main.value(BELOW) == 0
    assert sorted({*race.main.column(READ), *race.left()})[:10] == ids


def test_doctor_shows_messages_below_the_bound(race: Race) -> None:
    check = "select level, finding from spanmq.doctor() where check_name = 'bounds'"
    assert race.main.rows(check) == [("ok", "every message is found")]
    ids = race.send(3)
    race.give_back(ids)
    race.lease(3)
    race.main.rows("update spanmq_core.bound set due_from = clock_timestamp() + interval '1 hour'")
    ((level, finding),) = race.main.rows(check)
    assert level == "problem"
    assert f"jobs (3 messages, the first is {ids[0]})" in finding
    race.main.rows("update spanmq_core.bound set due_from = '-infinity'")


def test_delay_that_is_over_before_the_message_is_written(race: Race) -> None:
    guard, one, two = race.begun(), race.open(), race.open()
    # It waits for one of them even where the delay was over so early that it counted for none.
    guard.rows("lock table spanmq_core.later, spanmq_core.state in share mode")
    sending = one.waiting(SEND_SOON)
    before = two.value("select clock_timestamp()")
    # The clock passes the delay, and by so much that the bound would be past it.
    wait_until(lambda: two.value("select clock_timestamp() > %s::timestamptz + interval '1.2 s'", before))
    maintain(two)
    maintain(two)
    guard.commit()
    sent = [row[0] for row in sending.rows()]
    assert two.column(READ) == sent


def test_blocks_that_are_published_while_the_bound_moves(race: Race) -> None:
    race.main.rows("alter function spanmq.maintain(integer) reset lock_timeout")
    two, three = race.open(), race.open()
    write, block, first, last = race.reserve(5)
    settle_one(race)
    maintain(two)
    three.begin()
    three.rows("select spanmq.bulk_publish('jobs', 'w', 0, %s, %s)", write, [block])
    three.rows("lock table spanmq_core.bulk_block in access exclusive mode")
    moving = two.waiting(MAINTAIN)
    three.commit()
    moving.rows()
    maintain(two)
    assert two.column(READ) == list(range(first, last + 1))


def test_priority_that_is_sent_while_a_claim_looks(race: Race) -> None:
    guard, one, two = race.begun(), race.open(), race.open()
    guard.rows("lock table spanmq_core.later in access exclusive mode")
    claiming = one.waiting("select msg_id from spanmq.receive('jobs')")
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
            other = race.begun()
            ids += other.column(
                "select pgmq.send('jobs', '1')"
                if act == "send"
                else "select msg_id from pgmq.read('jobs', 0, 3)"
            )[len(ids) :]
            change_state(other.connection, LONG_AGO)
            settle_one(race)
            maintain(race.main)
            other.rows("prepare transaction 'other'")
        server.restart()
        with Race(server.dsn) as race:
            maintain(race.main)
            race.main.rows("commit prepared 'other'")
            assert race.main.column(READ) == ids


def from_id(race: Race) -> int:
    return int(race.main.value("select from_id from spanmq_core.bound_of(%s)", race.queue_id))


@pytest.fixture
def bounds(race: Race) -> Iterator[Race]:
    race.send(3)
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race.main)
    yield race
    # No bound is stuck: all transactions have ended.
    race.main.rows("select pgmq.purge_queue('jobs')")
    maintain(race.main)
    assert from_id(race) == race.main.value("select pg_sequence_last_value(ids) + 1 from spanmq_core.queue")


@pytest.mark.parametrize("send", SENDS)
def test_bound_stays_before_what_is_being_sent(bounds: Race, send: str) -> None:
    sender = bounds.open()
    # Its plans are kept by now: what a kept plan locks tells that it is a sender, too.
    for _ in range(8):
        sender.rows(f"select {SENDS[send]}")
    bounds.main.rows("select pgmq.purge_queue('jobs')")
    maintain(bounds.main)
    sender.begin()
    sent = sender.column(f"select {SENDS[send]}")
    maintain(bounds.main)
    # Ids that are drawn later are settled before it commits.
    bounds.send(3)
    bounds.main.rows("select pgmq.purge_queue('jobs')")
    maintain(bounds.main)
    sender.commit()
    assert bounds.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == sent


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_bound_stays_before_what_an_open_claim_has_or_puts_back(bounds: Race, fate: str) -> None:
    ids = bounds.send(8)
    claim = bounds.begun()
    taken = claim.column("select msg_id from pgmq.pop('jobs', 3)")
    maintain(bounds.main)
    claim.end(fate)
    maintain(bounds.main)
    left = ids[3:] if fate == "commit" else ids
    assert (taken, bounds.main.column("select msg_id from pgmq.read('jobs', 30, 100)")) == (ids[:3], left)


def test_bound_of_what_is_due_waits_for_an_open_claim(bounds: Race) -> None:
    ids = bounds.send(2)
    bounds.give_back(ids)
    bounds.main.rows("update spanmq_core.bound set due_from = '-infinity', mark_at = null, holders = null")
    claim = bounds.begun()
    claim.rows("select pgmq.read('jobs', 0, 2)")
    change_state(claim.connection, LONG_AGO)
    maintain(bounds.main)
    claim.commit()
    assert bounds.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == ids


@pytest.mark.parametrize("way", RETURNS)
def test_what_is_due_at_once_is_not_before_the_bound(bounds: Race, way: str) -> None:
    ids = bounds.send(3)
    maintain(bounds.main)
    bounds.main.rows(RETURNS[way].format(ids=", ".join(map(str, ids))))
    maintain(bounds.main)
    left = bounds.left()
    assert bounds.main.column("select msg_id from pgmq.read('jobs', 30, 100)") == left
    assert left[:3] == ids


def test_bound_stays_before_ids_that_are_reserved(bounds: Race) -> None:
    write, block, first, last = bounds.reserve(2)
    maintain(bounds.main)
    bounds.main.rows("select spanmq.bulk_publish('jobs', 'w', 0, %s, array[%s::bigint])", write, block)
    assert bounds.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == [first, last]


def test_ids_that_come_again_are_not_before_the_bound(bounds: Race) -> None:
    bounds.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 100000)")
    maintain(bounds.main)
    bounds.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 50000)")
    bounds.main.rows("select * from spanmq.maintain()")
    assert bounds.main.value("select pgmq.send('jobs', '1')") == 50001
    assert bounds.main.column("select msg_id from pgmq.read('jobs', 30, 2)") == [50001]


@pytest.mark.parametrize(
    "act", ["pgmq.send('jobs', '1', 9)", "pgmq.send_batch('jobs', array['1']::jsonb[], 9)", "extend"]
)
def test_message_that_becomes_due_after_the_clock_was_set_back(race: Race, act: str) -> None:
    maintain(race.main)
    if act == "extend":
        held = race.send(1)
        race.give_back(held)
        act = f"spanmq.extend('jobs', {race.lease(1)}, array{held}::bigint[], 9)"
    ahead = "clock_timestamp() + interval '1 hour'"
    race.main.rows(f"update spanmq_core.bound set due_from = {ahead}, mark_at = {ahead}")
    race.main.rows(f"select {act}")
    # When the clock has passed the mark again, nobody would notice that it was set back.
    assert race.main.value("select (spanmq_core.bound_of(%s)).due_from < clock_timestamp()", race.queue_id)
