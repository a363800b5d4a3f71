"""Segments come and go, and no table goes that anybody may still read or write."""

import random
import threading

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.race.sessions import Race, Rows, side_by_side
from tests.sql.segment import (
    SIZE,
    delete,
    did,
    maintain,
    make_queue,
    make_sparse,
    send_past,
    state_of,
    tables,
)

# Behind all segments, so that the next send makes one.
FAR_ON = "select setval('pgmq.q_jobs_msg_id_seq', 99999)"


@pytest.fixture
def race(race: Race) -> Race:
    make_queue(race)
    return race


def test_settled_segments_are_truncated_and_dropped(race: Race) -> None:
    for _ in range(20):
        ids = send_past(race)
        delete(race, ids)
        maintain(race)
    assert len(tables(race)) <= 5
    assert race.main.value("select count(*) from spanmq_core.segment where queue_id = %s", race.queue_id) <= 5


@pytest.mark.parametrize("call", ["read('jobs', 30, %s)", "receive('jobs', %s)", "pop('jobs', %s)"])
def test_one_call_takes_from_many_segments(race: Race, call: str) -> None:
    # The queue's row names a later segment than the first of these.
    ids = send_past(race, 3 * SIZE)
    maintain(race)
    taken = race.main.rows(f"select msg_id, (message->>'i')::int from {qualified(call)}", 2 * SIZE)
    assert taken == list(zip(ids[: 2 * SIZE], range(1, 2 * SIZE + 1), strict=True))
    assert len(race.main.rows(f"select msg_id from {qualified(call)}", 2 * SIZE)) == SIZE


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_old_snapshot_reads_to_its_end(race: Race, isolation: str) -> None:
    ids = send_past(race, 2 * SIZE)
    reader = race.open()
    reader.begin(isolation)
    reader.rows("select 1")
    send_past(race)
    delete(race, ids)
    assert did(maintain(race), "truncated segment") == 0
    assert reader.column("select msg_id from pgmq.q_jobs order by 1") == ids
    assert reader.value("select sum((message->>'i')::int) from pgmq.q_jobs") == sum(range(1, 2 * SIZE + 1))
    reader.commit()
    assert did(maintain(race), "truncated segment") >= 2
    assert state_of(race, ids[0]) is None


def test_open_cursor_reads_to_its_end(race: Race) -> None:
    ids = send_past(race, 2 * SIZE)
    reader = race.begun()
    reader.rows("declare looking no scroll cursor for select msg_id, message from pgmq.q_jobs")
    got = reader.rows("fetch 1 from looking")
    send_past(race)
    delete(race, ids)
    assert did(maintain(race), "truncated segment") == 0
    got += reader.rows("fetch all from looking")
    assert sorted(row[0] for row in got) == ids
    reader.commit()
    assert did(maintain(race), "truncated segment") >= 2


@pytest.mark.parametrize("fate", ["commit", "rollback", "death"])
def test_uncommitted_message_keeps_its_segment(race: Race, fate: str) -> None:
    sender = race.begun()
    (late,) = send_past(race, 1, sender)
    delete(race, send_past(race, 3 * SIZE))
    maintain(race)
    assert state_of(race, late) == "open"
    if fate == "death":
        sender.drop()
    else:
        sender.end(fate)
    done = maintain(race)
    if fate == "commit":
        assert race.main.rows("select msg_id, message from pgmq.read('jobs', 30, 10)") == [(late, {"i": 1})]
    else:
        assert fate == "death" or did(done, "truncated segment") >= 1
        assert state_of(race, late) is None


def test_sender_that_has_drawn_and_not_yet_written_is_waited_for(race: Race) -> None:
    # As send() does it, but with a wait between the two: the moment at which only its snapshot tells of it.
    race.main.rows(
        "create function public.send_slowly() returns bigint language plpgsql as $$"
        " declare id bigint;"
        " begin"
        "  perform pg_current_xact_id();"
        "  insert into spanmq_core.sending (queue_id, msg_id, vt) select 0, 0, now() where false;"
        "  id := nextval('pgmq.q_jobs_msg_id_seq');"
        "  perform pg_advisory_xact_lock(4711);"
        f"  perform spanmq_core.append({race.queue_id}, 256, id, null, now(), array['1']::jsonb[], null);"
        f"  perform spanmq_core.publish({race.queue_id}, id, id, null, null, null);"
        "  return id;"
        " end $$"
    )
    blocker, sender = race.begun(), race.open()
    blocker.rows("select pg_advisory_xact_lock(4711)")
    # maintain() in a transaction that has its number before the sender has one.
    before = race.begun()
    before.rows("select pg_current_xact_id()")
    later = sender.waiting("select public.send_slowly()")
    delete(race, send_past(race, 3 * SIZE))
    before.rows("select * from spanmq.maintain()")
    before.commit()
    maintain(race)
    blocker.commit()
    ((late,),) = later.rows()
    maintain(race)
    assert race.main.rows("select msg_id, message from pgmq.read('jobs', 30, 10)") == [(late, 1)]


def test_snapshot_taken_after_a_look_at_the_sessions_is_seen(race: Race) -> None:
    # Within a transaction PostgreSQL shows the sessions as they were at the first look.
    ids = send_past(race)
    send_past(race)
    late, reader = race.begun(), race.open()
    late.rows("select count(*) from pg_stat_activity where pid = pg_backend_pid()")
    reader.look()
    delete(race, ids)
    for _ in range(3):
        race.main.rows("select * from spanmq.maintain()")
    for _ in range(3):
        late.rows("select * from spanmq.maintain()")
    late.commit()
    assert len(reader.rows("select * from pgmq.q_jobs where msg_id = any (%s)", ids)) == SIZE
    reader.commit()


def test_horizon_does_not_depend_on_where_the_transaction_counts_ages_from(race: Race) -> None:
    # age() counts from the first look of the transaction; others have begun since.
    writer, reader, late = race.begun(), race.open(), race.open()
    oldest = writer.value("select pg_current_xact_id()::text::bigint")
    reader.look()
    writer.commit()
    late.begin()
    late.rows("select age(backend_xmin) from pg_stat_activity where pid = pg_backend_pid()")
    for _ in range(5):
        race.main.rows("select pg_current_xact_id()")
    assert late.value("select spanmq_core.horizon()::text::bigint") <= oldest
    late.rollback()
    reader.rollback()


def test_ids_of_transactions_are_full_across_an_epoch(race: Race) -> None:
    near = (7 << 32) + 5
    for expected in (near, near - 5, near - 6, near - 2_000_000_000, near + 3):
        short = expected & 0xFFFFFFFF
        assert race.main.value("select spanmq_core.full_id(%s::text::xid, %s)", short, near) == expected


def test_maintain_does_not_wait(race: Race) -> None:
    ids = send_past(race, 3 * SIZE)
    delete(race, ids)
    other = race.open()
    open_in_others = {
        "a reader": "select count(*) from pgmq.q_jobs",
        "analyze": f"analyze spanmq_core.log_{race.queue_id}",
        "changed notifications": "select pgmq.enable_notify_insert('jobs')",
        "a dropped queue": "select pgmq.drop_queue('jobs')",
        "a locked archive": "lock table pgmq.a_jobs in exclusive mode",
        "a locked row of the queue": "select from spanmq_core.queue for update",
        "a locked row of a segment": "select from spanmq_core.segment for update",
        "a sender that made a segment": f"{FAR_ON}; select pgmq.send('jobs', '1')",
    }
    for what, text in open_in_others.items():
        other.begin()
        other.rows(text)
        for _ in range(3):
            # Ends while the other goes on, which it would else do only when it times out.
            try:
                race.main.later("select * from spanmq.maintain()").rows()
            except TimeoutError:
                pytest.fail(f"maintain() waits for {what}")
        other.rollback()
    maintain(race)
    patience = "select proconfig from pg_proc where oid = 'spanmq.maintain'::regproc"
    assert "lock_timeout=20ms" in race.main.value(patience)


def test_maintain_waits_20_ms_for_a_lock_whatever_its_session_says(race: Race) -> None:
    race.main.rows("set lock_timeout = '40s'")
    race.main.rows("alter function spanmq_core.lock_log(text, text) rename to lock_log_now")
    race.main.rows("create table public.waits (longest text)")
    race.main.rows(
        "create function spanmq_core.lock_log(log_name text, mode text) returns void language plpgsql as"
        " $$ begin insert into public.waits values (current_setting('lock_timeout'));"
        " perform spanmq_core.lock_log_now(log_name, mode); end $$"
    )
    delete(race, send_past(race, 3 * SIZE))
    maintain(race)
    assert race.main.rows("select distinct longest from public.waits") == [("20ms",)]


def test_ten_that_maintain_at_once_do_it_once(race: Race) -> None:
    delete(race, send_past(race, 5 * SIZE))

    def work() -> None:
        session = race.open()
        for _ in range(15):
            session.rows("select * from spanmq.maintain()")

    side_by_side(*[work] * 10)
    maintain(race)
    assert len(tables(race)) <= 5


def test_cancelled_maintain_changes_nothing(race: Race) -> None:
    ids = send_past(race, 2 * SIZE)
    send_past(race)
    delete(race, ids)
    race.main.rows("select * from spanmq.maintain()")
    before = tables(race)
    blocker, stuck = race.begun(), race.open()
    blocker.rows("select pg_advisory_xact_lock(4711)")
    stuck.begin()
    stuck.rows("select * from spanmq.maintain()")
    stuck.rows("select * from spanmq.maintain()")
    later = stuck.waiting("select pg_advisory_xact_lock(4711)")
    race.main.rows("select pg_cancel_backend(%s)", stuck.pid)
    with pytest.raises(psycopg.errors.QueryCanceled):
        later.rows()
    stuck.rollback()
    assert tables(race) == before
    assert did(maintain(race), "truncated segment") >= 1


# Rewriting what is sparse


def bodies(race: Race) -> Rows:
    return race.main.rows("select msg_id, (message->>'i')::int from pgmq.q_jobs order by 1")


def test_sparse_segment_is_rewritten(race: Race) -> None:
    stay, others = make_sparse(race)
    before = bodies(race)
    done = maintain(race)
    assert [
        did(done, action) for action in ("copied segment", "rewrote segment", "dropped old table of segment")
    ] == [1, 1, 1]
    assert bodies(race) == before
    assert [row[0] for row in before] == stay + others
    rows = race.main.rows("select msg_id, (message->>'i')::int from pgmq.read('jobs', 30, 100)")
    assert sorted(rows) == before
    delete(race, stay)
    maintain(race)
    assert state_of(race, stay[0]) is None


def test_message_put_back_while_its_segment_is_looked_at_is_in_the_rewrite(race: Race) -> None:
    make_queue(race, 2048)
    ids = send_past(race, 2048)
    send_past(race, 10)
    race.main.rows("select spanmq.reject('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 1)")
    delete(race, ids[21:])
    # Notes that the ids have passed. Who puts the message back has a later number and nothing under way:
    # only its lock tells of it.
    race.main.rows("select * from spanmq.maintain()")
    redriver = race.begun()
    assert redriver.column("select msg_id from spanmq.redrive('jobs', delay => 0)") == ids[:1]
    redriver.rows("select 1")
    assert did(maintain(race), "copied segment") == 0
    redriver.commit()
    assert did(maintain(race), "rewrote segment") == 1
    assert [row[0] for row in bodies(race)][:21] == ids[:21]


def test_message_committed_during_a_rewrite_is_in_it(race: Race) -> None:
    # Its sender has a higher number than the maintain() that saw the ids pass, and no statement under way.
    make_queue(race, 2048)
    before = race.begun()
    before.rows("select pg_current_xact_id()")
    sender = race.begun()
    (late,) = send_past(race, 1, sender)
    sender.rows("select 1")  # else the driver's portal keeps a snapshot, which would be seen
    ids = send_past(race, 2048 + 10)
    delete(race, ids[5:2000])
    before.rows("select * from spanmq.maintain()")
    before.commit()
    maintain(race)
    sender.commit()
    maintain(race)
    assert late in [row[0] for row in bodies(race)]
    assert len(bodies(race)) == 1 + len(ids) - 1995


def test_old_snapshot_reads_through_a_rewrite(race: Race) -> None:
    stay, others = make_sparse(race)
    delete(race, stay[:1])
    reader = race.open()
    reader.begin("repeatable read")
    expected = reader.rows("select msg_id, message from pgmq.q_jobs order by 1")
    delete(race, stay[1:5])
    maintain(race)
    assert reader.rows("select msg_id, message from pgmq.q_jobs order by 1") == expected
    reader.commit()
    maintain(race)
    assert [row[0] for row in bodies(race)] == stay[5:] + others


def test_swap_of_a_rewrite_does_not_hold_up_readers(race: Race) -> None:
    # While a sender that made a segment has the parent locked, the swap must not sit on the old table.
    stay, _ = make_sparse(race)
    while not did(race.main.rows("select action, detail from spanmq.maintain()"), "copied segment"):
        pass
    sender, reader, worker = race.begun(), race.open(), race.open()
    sender.rows(f"{FAR_ON}; select pgmq.send('jobs', '1')")
    for _ in range(3):
        worker.later("select * from spanmq.maintain()").rows()
    look = reader.later("select * from pgmq.q_jobs where msg_id = any (%s)", stay)
    assert len(look.rows()) == len(stay)
    sender.rollback()
    maintain(race)


def test_settles_claims_and_readers_go_on_during_rewrites(race: Race) -> None:
    make_queue(race, 1280)
    total = 6 * 1280
    ids = send_past(race, total)
    send_past(race, 3000)
    survivors = set(ids[::37])
    delete(race, sorted(set(ids) - survivors))
    settled: list[int] = []
    done: Rows = []
    is_over = threading.Event()

    def settle() -> None:
        session, chance = race.open(), random.Random(1)
        while len(settled) < len(survivors) * 0.8:
            call = "select msg_id, (message->>'i')::int from pgmq.read('jobs', 3600, %s)"
            rows = [row for row in session.rows(call, chance.randint(1, 5)) if row[0] in survivors]
            assert all(number == message_id - ids[0] + 1 for message_id, number in rows)
            session.rows("select pgmq.delete('jobs', %s::bigint[])", [row[0] for row in rows])
            settled.extend(row[0] for row in rows)
        is_over.set()

    def read() -> None:
        session = race.open()
        while not is_over.is_set():
            session.begin("repeatable read")
            first = session.rows("select msg_id, message from pgmq.q_jobs order by 1")
            assert session.rows("select msg_id, message from pgmq.q_jobs order by 1") == first
            session.commit()

    def keep() -> None:
        session = race.open()
        while not is_over.is_set():
            done.extend(session.rows("select action, detail from spanmq.maintain()"))

    side_by_side(settle, settle, read, keep, finally_do=is_over.set)
    done += maintain(race)
    assert did(done, "rewrote segment") >= 1
    assert len(settled) == len(set(settled))
    assert {each for each in race.left() if each in set(ids)} == survivors - set(settled)


@pytest.mark.parametrize("call", ["pgmq.read('jobs', 30, 20)", "spanmq.receive('jobs', 20)"])
def test_claim_across_the_end_of_the_segment_that_the_queue_names_gives_all(race: Race, call: str) -> None:
    send_past(race, 1)
    last = race.main.value("select log_hi from spanmq_core.queue where name = 'jobs'")
    other = race.open()
    # A sender that can't have the queue's row at once does not note the segment that it has come to.
    other.begin()
    other.rows("select from spanmq_core.queue where name = 'jobs' for no key update")
    ids = send_past(race, 2 * SIZE)
    other.commit()
    assert race.main.value("select log_hi from spanmq_core.queue where name = 'jobs'") == last
    across = list(range(last - 9, last + 11))
    delete(race, [each for each in [ids[0] - 1, *ids] if each not in across])
    assert race.main.column(f"select msg_id from {call}") == across


def test_counts_of_a_partitioned_queue_may_have_ten_digits(race: Race) -> None:
    race.main.rows("select pgmq.create_partitioned('parts', '9999999999', '1000000000')")
    found = race.main.rows("select segment_size, retention_count from spanmq_core.queue where name = 'parts'")
    assert found == [(1048576, 1_000_000_000)]


def test_calls_until_one_does_nothing_free_what_is_settled(race: Race) -> None:
    delete(race, send_past(race, 4 * SIZE))
    done: Rows = []
    # A session that is just being opened, of any test, counts as one that may look back: such a call is not the last.
    was_alone = "select transactions = '{}' from spanmq_core.horizon"
    for _ in range(100):
        race.wait_for_other_databases()
        rows = race.main.rows("select action, detail from spanmq.maintain()")
        done += rows
        if not rows and race.main.value(was_alone):
            break
    # The last one holds the newest id.
    assert did(done, "truncated segment") == did(done, "dropped segment") == 3
