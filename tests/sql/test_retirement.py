"""Segments on their way out, against late runs, prepared transactions and copied names."""

import struct
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.schemas import qualified
from tests.sql.model.invariants import broken_invariants
from tests.sql.race.sessions import Race, Session
from tests.sql.segment import SIZE, delete, did, maintain, make_queue, make_sparse, send_past, state_of

from spanmq import embedded, schema

# has_unsettled_in() tells of no message at its first look at these ids, as if one had come between that and the lock.
SPAN_COMES_BETWEEN = """
create sequence public.looks;
create or replace function spanmq_core.has_unsettled_in(this_queue int, first_id bigint, last_id bigint) returns boolean
language plpgsql as $$
begin
    if last_id <> {last_id} then
        return exists (
            select from pgmq.q_jobs where msg_id between first_id and last_id);
    end if;
    return nextval('public.looks') > 1;
end $$;
"""


@pytest.fixture
def race(race: Race) -> Race:
    make_queue(race)
    return race


def noted_as_settled(race: Race) -> int:
    """Make a segment that is settled and noted as such, not yet truncated; return its last id."""
    delete(race, send_past(race, 1))
    maintain(race)  # the first segment of all goes
    ids = send_past(race)
    last_id = ids[0] | (SIZE - 1)
    delete(race, ids)
    send_past(race)
    noted = "select count(settled_at_xid) from spanmq_core.segment where queue_id = %s and hi = %s"
    while not race.main.value(noted, race.queue_id, last_id):
        race.main.rows("select * from spanmq.maintain()")
    race.wait_for_other_databases()
    assert state_of(race, last_id) == "open"
    return last_id


def test_segment_is_looked_at_again_under_its_lock(race: Race) -> None:
    last_id = noted_as_settled(race)
    race.main.rows(SPAN_COMES_BETWEEN.format(last_id=last_id))
    worker, reader = race.open(), race.open()

    def looked_twice() -> bool:
        # A session that is just being opened, of any test, may be in the way of a call: the next one goes on. It has a
        # transaction of its own, since only the first call of a transaction retires segments.
        race.main.rows("select setval('public.looks', 1, false)")
        worker.begin()
        assert not did(worker.rows("select action, detail from spanmq.maintain()"), "truncated segment")
        if race.main.value("select last_value = 2 from public.looks"):
            return True
        worker.commit()
        return False

    wait_until(looked_twice)
    assert state_of(race, last_id) == "open"
    # It was locked for that look; nobody waits for the end of maintain()'s transaction.
    reader.rows("set lock_timeout = '5s'")
    assert len(reader.rows("select * from pgmq.q_jobs")) == SIZE
    worker.commit()


def check_it_is_kept_for(reader: Session, race: Race, message_id: int) -> None:
    """Settle a message that a reader has seen, and check that its segment goes when the reader has ended."""
    reader.look()
    delete(race, [message_id])
    maintain(race)
    assert reader.column("select msg_id from pgmq.q_jobs where msg_id = %s", message_id) == [message_id]
    reader.commit()
    maintain(race)
    assert state_of(race, message_id) is None


def test_segment_into_which_a_late_message_came_is_noted_anew(race: Race) -> None:
    sender, reader = race.begun(), race.open()
    (late,) = send_past(race, 1, sender)
    delete(race, send_past(race, 3 * SIZE))
    maintain(race)
    sender.commit()
    maintain(race)
    check_it_is_kept_for(reader, race, late)


@pytest.mark.parametrize("writes_before", [True, False])
def test_late_message_that_came_and_went_is_kept_for_who_saw_it(race: Race, writes_before: bool) -> None:
    sender, reader = race.begun(), race.open()
    # As a sender does that has drawn its id and is not further yet: it holds nothing but its number.
    sender.rows("insert into spanmq_core.sending (queue_id, msg_id, vt) select 0, 0, now() where false")
    late = sender.value("select nextval(ids) from spanmq_core.queue where pg_current_xact_id() is not null")
    log_name = race.main.value("select spanmq_core.log_of(%s, %s, %s)", race.queue_id, late, late)

    def write() -> None:
        sender.rows(f"insert into spanmq_core.{log_name} values (%s, now(), '1')", late)
        sender.rows(
            "insert into spanmq_core.state (queue_id, msg_id, vt) values (%s, %s, now())", race.queue_id, late
        )

    if writes_before:
        write()
    delete(race, send_past(race, 3 * SIZE))
    maintain(race)
    if not writes_before:
        write()
    sender.commit()
    check_it_is_kept_for(reader, race, late)


def test_redriven_message_that_came_and_went_is_kept_for_who_saw_it(race: Race) -> None:
    redriver, reader = race.open(), race.open()
    (dead,) = send_past(race, 1)
    race.main.rows(
        "select t.* from spanmq.receive('jobs') r, spanmq.reject('jobs', r.lease_id, array[r.msg_id], 'bad') t"
    )
    ids = send_past(race)
    maintain(race)  # notes that the ids have passed the segment
    redriver.begin()
    redriver.rows("select * from spanmq.redrive('jobs', delay => 0)")
    delete(race, ids)
    maintain(race)
    redriver.commit()
    check_it_is_kept_for(reader, race, dead)


@pytest.mark.parametrize(
    "call",
    [
        "send('jobs', '1')",
        "send_batch('jobs', array['1', '2']::jsonb[])",
        "send_batch('jobs', array_fill('1'::jsonb, array[100]))",
        "send_messages('jobs', array['1']::jsonb[], priority => 1)",
    ],
)
def test_sender_has_its_number_before_it_draws_ids(race: Race, call: str) -> None:
    # For maintain(), which sees the ids drawn, must see that there is somebody who may write them.
    (last,) = send_past(race, 1)
    name = race.main.value(
        "select log_name from spanmq_core.segment where queue_id = %s and %s between lo and hi",
        race.queue_id,
        last,
    )
    holder, sender = race.begun(), race.open()
    holder.rows(f"lock table spanmq_core.{name} in access exclusive mode")
    later = sender.waiting(f"select * from {qualified(call)}")
    assert race.main.value("select last_value from pgmq.q_jobs_msg_id_seq") > last
    number = "select backend_xid is not null from pg_stat_activity where pid = %s"
    assert race.main.value(number, sender.pid)
    holder.commit()
    later.rows()


def test_table_goes_only_when_nobody_can_have_its_name(race: Race) -> None:
    # A reader that looked a segment up before it was truncated may still be about to read its table.
    last_id = noted_as_settled(race)
    before, reader = race.open(), race.open()
    for session in (before, reader):
        session.look()
        race.main.rows("select * from spanmq.maintain()")
    before.commit()
    # The reader began after it had been noted who may look back to before the segment was settled.
    assert did(maintain(race), "truncated segment") == 1
    assert state_of(race, last_id) == "truncated"
    log_name = reader.value(
        "select log_name from spanmq_core.segment where queue_id = %s and %s between lo and hi",
        race.queue_id,
        last_id,
    )
    assert reader.rows(f"select * from spanmq_core.{log_name}") == []
    reader.commit()
    maintain(race)
    assert state_of(race, last_id) is None


@pytest.mark.parametrize("is_copied", [False, True])
def test_segment_that_the_queue_s_row_names_is_not_swapped(race: Race, is_copied: bool) -> None:
    # Receivers take the name of the table from the queue's row. maintain() passes over a row that others
    # lock; a row that claims to hold all later ids too is passed over as well.
    stay, others = make_sparse(race)
    delete(race, others)
    while is_copied and not did(
        race.main.rows("select action, detail from spanmq.maintain()"), "copied segment"
    ):
        pass
    race.main.rows(
        "update spanmq_core.queue q set log_lo = s.lo, log_hi = 1 << 30, log_name = s.log_name"
        " from spanmq_core.segment s where q.queue_id = s.queue_id and %s between s.lo and s.hi",
        stay[0],
    )
    maintain(race)
    got = race.main.column("select msg_id from spanmq.receive('jobs', 1)")
    got += race.main.column("select msg_id from pgmq.read('jobs', 30, 1)")
    assert got == stay[:2]
    race.main.rows("update spanmq_core.queue set log_lo = 0, log_hi = -1, log_name = null")
    assert did(maintain(race), "rewrote segment") == 1
    assert race.main.column("select msg_id from pgmq.read('jobs', 30, 1)") == stay[2:3]


# Transactions that were prepared: no session has their snapshot, and a restart does not end them.


@pytest.fixture(scope="module")
def preparing_server() -> Iterator[embedded.TemporaryServer]:
    # The snapshots of autovacuum would hold back what maintain() is to truncate.
    settings = {"max_prepared_transactions": "5", "fsync": "off", "autovacuum": "off"}
    with embedded.temporary(settings=settings) as server:
        with psycopg.connect(server.dsn) as connection:
            schema.install(connection)
        yield server


@pytest.fixture
def prepared(preparing_server: embedded.TemporaryServer) -> Iterator[Race]:
    with Race(preparing_server.dsn) as opened:
        make_queue(opened)
        yield opened
        opened.main.rows("select pgmq.drop_queue('jobs')")
        assert broken_invariants(opened.main.connection) == []


@pytest.mark.parametrize("fate", ["commit prepared", "rollback prepared"])
def test_prepared_send_keeps_its_segment(prepared: Race, fate: str) -> None:
    sender = prepared.begun()
    (late,) = send_past(prepared, 1, sender)
    sender.rows("prepare transaction 'late'")
    delete(prepared, send_past(prepared, 3 * SIZE))
    maintain(prepared)
    assert state_of(prepared, late) == "open"
    prepared.main.rows(f"{fate} 'late'")
    assert prepared.left() == ([late] if fate == "commit prepared" else [])
    delete(prepared, prepared.left())
    assert did(maintain(prepared), "truncated segment") >= 1
    assert state_of(prepared, late) is None


@pytest.mark.parametrize("fate", ["commit prepared", "rollback prepared"])
def test_prepared_settlement_keeps_its_segment(prepared: Race, fate: str) -> None:
    ids = send_past(prepared, 2 * SIZE)
    settler = prepared.begun()
    settler.rows("select pgmq.delete('jobs', %s::bigint[])", ids)
    settler.rows("prepare transaction 'settlement'")
    send_past(prepared, 1)
    maintain(prepared)
    assert did(maintain(prepared), "truncated segment") == 0
    prepared.main.rows(f"{fate} 'settlement'")
    bodies = prepared.main.rows(
        "select msg_id, (message->>'i')::int from pgmq.read('jobs', 30, %s)", len(ids)
    )
    expected = (
        list(enumerate(range(1, len(ids) + 1), ids[0])) if fate == "rollback prepared" else [(ids[-1] + 1, 1)]
    )
    assert bodies == expected


def test_prepared_transaction_holds_the_horizon_back(prepared: Race) -> None:
    # It has touched nothing of the queue: only its number tells that a snapshot may not see it.
    other = prepared.begun()
    number = other.value("select pg_current_xact_id()::text::bigint")
    other.rows("prepare transaction 'other'")
    prepared.main.rows("select pg_current_xact_id()")
    assert prepared.main.value("select spanmq_core.horizon()::text::bigint") <= number
    prepared.main.rows("commit prepared 'other'")
    assert prepared.main.value("select spanmq_core.horizon()::text::bigint") > number


def test_slot_of_a_standby_holds_the_horizon_back(prepared: Race) -> None:
    # A standby whose readers look back tells so, and the slot remembers it when the standby has gone.
    number = prepared.main.value("select pg_current_xact_id()::text::bigint")
    prepared.main.rows("select pg_create_physical_replication_slot('standby')")
    place = prepared.main.value("select pg_current_wal_flush_lsn()::text")
    try:
        # Who replicates has the connection to itself: to close it is all that can be done with it.
        with closing(psycopg.connect(prepared.dsn, replication="true", autocommit=True)) as standby:
            standby.pgconn.exec_(f"START_REPLICATION SLOT standby PHYSICAL {place}".encode())
            standby.pgconn.put_copy_data(b"h" + struct.pack("!qIIII", 0, number, 0, 0, 0))
            standby.pgconn.flush()
            noted = "select xmin::text::bigint from pg_replication_slots"
            wait_until(lambda: prepared.main.value(noted) == number)
        wait_until(lambda: not prepared.main.value("select active from pg_replication_slots"))
        prepared.main.rows("select pg_current_xact_id()")
        assert prepared.main.value("select spanmq_core.horizon()::text::bigint") <= number
    finally:
        prepared.main.rows("select pg_drop_replication_slot('standby')")
    assert prepared.main.value("select spanmq_core.horizon()::text::bigint") > number


def test_queue_of_a_prepared_send_is_not_dropped(prepared: Race) -> None:
    sender = prepared.begun()
    (late,) = send_past(prepared, 1, sender)
    sender.rows("prepare transaction 'late'")
    dropper = prepared.open()
    dropper.rows("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        dropper.rows("select pgmq.drop_queue('jobs')")
    prepared.main.rows("commit prepared 'late'")
    assert prepared.left() == [late]


@pytest.mark.parametrize("of", ["schedule", "batch"])
def test_message_that_a_full_queue_refuses_keeps_no_segment(race: Race, of: str) -> None:
    race.main.rows("select pgmq.create('full'), pgmq.send('full', '1')")
    race.main.rows("""select spanmq.set_policy('full', '{"max_backlog": 1}')""")
    if of == "schedule":
        race.main.rows("select spanmq.schedule('late', 'full', '0 0 1 1 *', '1')")
        race.main.rows(
            "insert into spanmq_core.schedule_time"
            " select schedule_id, now() - interval '1 hour' from spanmq_core.schedule"
        )
    else:
        race.main.rows("select spanmq.create_batch('full', '1')")
    ids = send_past(race, 3 * SIZE)
    delete(race, ids)
    maintain(race)
    assert state_of(race, ids[0]) is None
    assert race.main.value("select count(*) from pgmq.q_full") == 1


@pytest.mark.parametrize("fate", ["commit prepared", "rollback prepared"])
def test_prepared_nack_of_a_dropped_queue_changes_nothing_in_the_next(prepared: Race, fate: str) -> None:
    (one,) = send_past(prepared, 1)
    lease = prepared.lease(1)
    consumer = prepared.begun()
    consumer.rows("select spanmq.nack('jobs', %s, array[%s::bigint], 'boom', null, 0)", lease, one)
    consumer.rows("prepare transaction 'late'")
    prepared.main.rows("select pgmq.drop_queue('jobs')")
    prepared.main.rows("select pgmq.create('jobs')")
    maintain(prepared)
    left = "select count(*) from spanmq_core.dropped_queue where queue_id = %s"
    assert prepared.main.value(left, prepared.queue_id) == 1
    prepared.main.rows(f"{fate} 'late'")
    assert prepared.left() == [] != [one]
    maintain(prepared)
    assert prepared.main.value(left, prepared.queue_id) == 0
    assert prepared.queue_id not in prepared.main.column("select queue_id from spanmq_core.unsettled")
