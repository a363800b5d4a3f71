"""What was looked at before a lock was had may have changed: each is looked at again under the lock."""

import pytest
from tests.sql.race.sessions import Later, Race, Session

GATE = 4711
EXTEND = "select outcome from spanmq.extend('jobs', %s, %s, 60)"
ORDERED = """select spanmq.set_policy('jobs', '{"ordered": true}')"""
BLOCKING = """select spanmq.set_policy('jobs', '{"ordered": true, "dead_letter_blocks_group": true}')"""
SEND = (
    "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s]),"
    ' array_fill(\'{"x-pgmq-group": "blue"}\'::jsonb, array[%s]))'
)


def make_gate(race: Race) -> None:
    """Make a function at which sessions wait for the lock test.gate, having passed it test.passes times."""
    race.main.rows(
        "create function spanmq.pass_gate() returns boolean language plpgsql as $$ begin"
        " if current_setting('test.passes', true) > '0' then"
        "  perform set_config('test.passes', (current_setting('test.passes')::int - 1)::text, false);"
        " elsif current_setting('test.gate', true) <> '' then"
        "  perform pg_advisory_xact_lock_shared(current_setting('test.gate')::bigint);"
        " end if;"
        " return true; end $$"
    )


def stopped_in_a_look(
    race: Race, passes: int, claim: str = "select msg_id from spanmq.receive('jobs', 1)"
) -> tuple[Session, Session, Later]:
    """Stop a claim in its first look at the group, which it sees free, or in a later one.

    Return who may let it go on, another session, and the claim.
    """
    make_gate(race)
    race.main.rows("alter table spanmq_core.blocked_group rename to blocked_group_rows")
    race.main.rows(
        "create view spanmq_core.blocked_group as"
        " select * from spanmq_core.blocked_group_rows where (select spanmq.pass_gate())"
    )
    guard, slow, quick = race.open(), race.open(), race.open()
    guard.rows("select pg_advisory_lock(%s)", GATE)
    slow.rows("select set_config('test.gate', %s, false)", str(GATE))
    slow.rows("select set_config('test.passes', %s, false)", str(passes))
    return guard, quick, slow.waiting(claim)


def test_group_is_locked_before_the_second_look(race: Race) -> None:
    race.main.rows(BLOCKING)
    ids = race.main.column(SEND, 3, 3)
    guard, quick, later = stopped_in_a_look(race, 1)
    assert quick.rows("select msg_id from spanmq.receive('jobs', 1)") == []
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    assert later.rows() == [(ids[0],)]


@pytest.mark.parametrize("act", ["leases", "buries", "extends", "retries", "rejects"])
def test_group_that_another_took_meanwhile_is_left_alone(race: Race, act: str) -> None:
    race.main.rows(BLOCKING)
    # The first claim makes the locks of the queue's groups, and keeps others off until it commits.
    race.main.rows("select pgmq.send('jobs', '0')")
    race.main.rows("select pgmq.pop('jobs')")
    ids = race.main.column(SEND, 3, 3)
    # Of a lease that ran out, which gives the group free.
    late = race.lease(1, -1) if act in ("extends", "retries", "rejects") else None
    # In the midst of the first look, as of the moment at which it began.
    guard, quick, later = stopped_in_a_look(race, 0)
    if act == "extends":
        assert quick.rows(EXTEND, late, ids[:1]) == [("extended",)]
    elif act == "rejects":
        quick.rows("select spanmq.reject('jobs', %s, %s)", late, ids[:1])
    elif act == "retries":
        quick.rows("select spanmq.nack('jobs', %s, %s, retry_in => 60)", late, ids[:1])
    else:
        ((lease, first),) = quick.rows("select lease_id, msg_id from spanmq.receive('jobs', 1)")
        assert first == ids[0]
        if act == "buries":
            quick.rows("select spanmq.reject('jobs', %s, %s)", lease, [first])
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    assert later.rows() == []


@pytest.mark.parametrize("fate", ["commit", "rollback"])
@pytest.mark.parametrize("is_leased", [False, True])
def test_message_that_another_took_meanwhile_leaves_no_gap(race: Race, fate: str, *, is_leased: bool) -> None:
    race.main.rows(ORDERED)
    ids = race.main.column(SEND, 20, 20)
    # Of a lease that ran out.
    late = race.lease(3, -1) if is_leased else None
    # After it has seen which messages the group has.
    guard, quick, later = stopped_in_a_look(race, 0, "select msg_id from pgmq.read_grouped('jobs', 30, 20)")
    quick.begin()
    if is_leased:
        quick.rows("select spanmq.nack('jobs', %s, %s, retry_in => 60)", late, ids[1:2])
    else:
        quick.rows("select pgmq.delete('jobs', %s::bigint)", ids[4])
    if fate == "commit":
        quick.commit()
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    received = [row[0] for row in later.rows()]
    if fate == "rollback":
        # It is locked yet: nothing behind it is delivered; nothing at all where its lease might be extended.
        assert received == ([] if is_leased else ids[:4])
        quick.rollback()
    else:
        assert received == ([] if is_leased else [*ids[:4], *ids[5:]])


def test_message_that_was_committed_late_is_not_passed_over(race: Race) -> None:
    race.main.rows(ORDERED)
    race.main.rows("select pgmq.send('jobs', '0')")
    race.main.rows("select pgmq.pop('jobs')")
    sender = race.begun()
    first = sender.column(SEND, 1, 1)
    second = race.main.column(SEND, 1, 1)
    # It has seen the second one only.
    guard, _, later = stopped_in_a_look(race, 0)
    sender.commit()
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    assert later.rows() == []
    assert race.main.column("select msg_id from spanmq.receive('jobs', 10)") == [*first, *second]


def test_group_of_an_open_claim_is_locked_for_what_was_committed_late_too(race: Race) -> None:
    race.main.rows(ORDERED)
    race.main.rows("select pgmq.send('jobs', '0')")
    race.main.rows("select pgmq.pop('jobs')")
    sender, claimer = race.begun(), race.begun()
    first = sender.column(SEND, 1, 1)
    second = race.main.column(SEND, 1, 1)
    assert claimer.column("select msg_id from spanmq.receive('jobs', 1)") == second
    sender.commit()
    assert race.main.column("select msg_id from spanmq.receive('jobs', 10)") == []
    claimer.rollback()
    assert race.main.column("select msg_id from spanmq.receive('jobs', 10)") == [*first, *second]


def test_lease_that_was_extended_meanwhile_blocks_what_is_before_it(race: Race) -> None:
    race.main.rows(ORDERED)
    ids = race.main.column(SEND, 3, 3)
    late = race.lease(3, -1)
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", ids[0])
    # It wants the first one, which has left the lease.
    guard, quick, later = stopped_in_a_look(race, 0)
    assert quick.rows(EXTEND, late, ids[1:]) == [("extended",)] * 2
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    assert later.rows() == []


def test_claims_take_tokens_one_after_the_other(race: Race) -> None:
    race.send(2)
    race.main.value('select spanmq.set_policy(%s, \'{"rate_limit": 0.001, "rate_burst": 1}\')', race.queue)
    guard, one, two = race.begun(), race.open(), race.open()
    guard.rows("select spanmq_core.lock(%s, 'rate')", race.queue_id)
    claims = [each.later("select msg_id from spanmq.receive('jobs', 1)") for each in (one, two)]
    assert [each.waits() for each in claims] == [True, True]
    guard.commit()
    assert sorted(len(each.rows()) for each in claims) == [0, 1]


def test_messages_in_flight_are_counted_again_where_claims_go_side_by_side(race: Race) -> None:
    race.send(70)
    race.main.rows("""select spanmq.set_policy('jobs', '{"max_in_flight": 64}')""")
    make_gate(race)
    race.main.rows(
        "alter function spanmq_core.count_in_flight(int, timestamptz) rename to count_in_flight_now"
    )
    race.main.rows(
        "create function spanmq_core.count_in_flight(this_queue int, at_ timestamptz) returns int"
        " language plpgsql as $$"
        " declare n int := spanmq_core.count_in_flight_now(this_queue, at_);"
        " begin perform spanmq.pass_gate(); return n; end $$"
    )
    guard, slow = race.open(), race.open()
    guard.rows("select pg_advisory_lock(%s)", GATE)
    slow.rows("select set_config('test.gate', %s, false)", str(GATE))
    # It has counted none, and has no lock yet.
    later = slow.waiting("select msg_id from spanmq.receive('jobs', 1)")
    assert sum(len(race.main.rows("select msg_id from spanmq.receive('jobs', 1)")) for _ in range(70)) == 64
    guard.rows("select pg_advisory_unlock(%s)", GATE)
    assert later.rows() == []


def test_visible_message_that_another_leased_meanwhile_is_left_alone(race: Race) -> None:
    ids = race.send(3)
    race.lease(3)
    # What a claim does with a message that was visible in its statement before.
    take = "select spanmq_core.lock_visible(%s, array[%s]::bigint[], clock_timestamp())::text"
    assert race.main.value(take, race.queue_id, ids[0]) == "{}"
    assert race.left() == ids


def test_batch_takes_no_ids_of_a_queue_that_was_dropped_meanwhile(race: Race) -> None:
    # The ids cross the end of a segment, so the sender looks for the queue again.
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 16383)")
    batch = "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[3]))"
    one, two = race.begun(), race.open()
    one.rows("lock table spanmq_core.state in share mode")
    # It knows the queue, and draws ids when it has its lock.
    later = two.waiting(batch)
    one.rows("select pgmq.drop_queue('jobs')")
    one.rows("select pgmq.create('jobs')")
    one.commit()
    assert later.rows() == [(1,), (2,), (3,)]
    assert two.column(batch) == [4, 5, 6]


REVOKE = "select spanmq.revoke_queue('pg_monitor', '%s', 'send')"
GRANT = "select spanmq.grant_queue('pg_monitor', '%s', 'send')"
NO_RATE, RATE_3, RATE_5 = (
    f"select spanmq.set_policy('%s', '{{\"rate_limit\": {n}}}')" for n in ("null", "3", "5")
)
# What leaves no object, what makes one, what is done then, how it ends, and what that is.
MADE = {
    "revoke": (REVOKE, GRANT, REVOKE, "select count(*) from spanmq.list_grants('jobs')", 0),
    "rate": (NO_RATE, RATE_3, RATE_5, "select spanmq.get_policy('jobs')->'rate_limit'", 5),
    "no rate": (NO_RATE, RATE_3, NO_RATE, "select count(*) from pg_class where relname ~ '^rate_[0-9]+$'", 0),
}


@pytest.mark.parametrize("case", MADE)
def test_object_that_was_made_while_it_waited_is_found(race: Race, case: str) -> None:
    none, first, second, found, expected = MADE[case]
    race.main.rows("select pgmq.create('others')")
    one, two = race.begun(), race.open()
    # A session remembers that there was no such object, and within a transaction that holds the locks on tables
    # already nothing tells it of a new one.
    two.rows(none % "jobs")
    two.begin()
    two.rows(second % "others")
    one.rows(first % "jobs")
    later = two.waiting(second % "jobs")
    one.commit()
    later.rows()
    two.commit()
    assert race.main.value(found) == expected
