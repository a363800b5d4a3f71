"""Claims begin behind the segments that are settled, and nothing that comes back there is passed by."""

import pytest
from tests.sql.race.sessions import Race
from tests.sql.segment import (
    CLAIMS,
    FIRST_ID,
    SEND_GROUP,
    SET_HINT,
    SIZE,
    maintain,
    make_queue,
    send_and_settle,
    settled_to,
)


@pytest.fixture
def race(race: Race) -> Race:
    make_queue(race)
    return race


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("claim", CLAIMS)
def test_message_that_comes_back_into_a_settled_segment_is_the_next(
    race: Race, claim: str, is_held: bool
) -> None:
    holder = race.open()
    if is_held:
        # Its segment stays; else it is gone, and made again.
        holder.begin("repeatable read")
        holder.rows("select 1")
    back = send_and_settle(race, 4 * SIZE, rejected=1)[0]
    later = race.main.column(SEND_GROUP, 1)
    assert settled_to(race) > back
    assert race.main.column("select msg_id from pgmq.redrive('jobs', delay => 0)") == [back]
    assert settled_to(race) <= back
    maintain(race)
    assert settled_to(race) <= back
    taken = race.main.column(f"select msg_id from pgmq.{claim}")
    assert taken[:1] == [back]
    # In order of groups nothing else, as long as it is in work.
    if "group" in claim:
        assert race.main.column(f"select msg_id from pgmq.{claim}") == []
    race.main.rows("select pgmq.delete('jobs', %s::bigint[])", [back, *later])
    if is_held:
        holder.commit()
    maintain(race)
    assert settled_to(race) > back


@pytest.mark.parametrize("is_held", [True, False])
@pytest.mark.parametrize("claim", CLAIMS)
def test_messages_that_come_back_into_one_settled_segment_one_by_one_are_all_seen(
    race: Race, claim: str, is_held: bool
) -> None:
    """The later one first: it takes the note of the segment away, for the earlier one too."""
    race.main.rows("select pgmq.drop_queue('jobs')")
    race.main.rows("select pgmq.create_partitioned('jobs', %s)", str(4 * SIZE))
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", FIRST_ID)
    holder = race.open()
    if is_held:
        holder.begin("repeatable read")
        holder.rows("select 1")
    n = 2 * SIZE
    first, *_, last = send_and_settle(race, 12 * SIZE, rejected=n)[:n]
    (later,) = race.main.column(SEND_GROUP, 1)
    assert settled_to(race) > last
    for back in (last, first):
        assert race.main.value("select pgmq.redrive_message('jobs', %s, delay => 0)", back)
        assert settled_to(race) <= back
    taken = race.main.column(f"select msg_id from pgmq.{claim}")
    assert taken[:1] == [first]
    race.main.rows("select pgmq.delete('jobs', %s::bigint[])", [first, last, later])
    race.main.rows("select pgmq.purge_dead_letters('jobs')")
    if is_held:
        holder.commit()


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_nothing_is_noted_as_settled_while_a_message_is_being_put_back(race: Race, fate: str) -> None:
    back = send_and_settle(race, 2 * SIZE, rejected=1)[0]
    before = settled_to(race)
    redriver = race.open()
    redriver.begin()
    assert redriver.column("select msg_id from pgmq.redrive('jobs', delay => 0)") == [back]
    redriver.rows("select 1")
    send_and_settle(race, 2 * SIZE)
    assert settled_to(race) == before
    redriver.end(fate)
    send_and_settle(race, 2 * SIZE)
    if fate == "commit":
        assert settled_to(race) <= back
        race.main.rows("select pgmq.delete('jobs', %s)", back)
        maintain(race)
    send_and_settle(race, 2 * SIZE)
    assert settled_to(race) > before


@pytest.mark.parametrize(
    ("claim", "between", "result"),
    [
        ("read_grouped_head('jobs', 30, 1)", "is_slow(took interval)", "boolean"),
        (
            "read_grouped('jobs', 30, 5)",
            "follow_hint(this_queue int, hint spanmq.hint, first_lo bigint, took interval, at_ timestamptz)",
            "spanmq.hint",
        ),
    ],
)
def test_claim_of_a_group_sees_what_came_back_and_was_taken_while_it_looked(
    race: Race, claim: str, between: str, result: str
) -> None:
    """It reads the queue's row, a message comes back and is leased, and then it looks at the group."""
    back = send_and_settle(race, 2 * SIZE, rejected=1)[0]
    race.main.rows(SEND_GROUP, 1)
    race.main.rows(
        # Between the choice of the group and the look at it.
        f"create or replace function spanmq.{between} returns {result} language plpgsql as"
        " $$ begin perform pg_advisory_xact_lock(4711); return null; end $$"
    )
    blocker, claimer = race.open(), race.open()
    blocker.begin()
    blocker.rows("select pg_advisory_xact_lock(4711)")
    claimer.rows(SET_HINT)
    later = claimer.later(f"select msg_id from pgmq.{claim}")
    assert later.waits()
    blocker.rows("select pgmq.redrive('jobs', delay => 0)")
    blocker.rows(
        "update spanmq.span set lease_id = 5, state = 'l', attempts = 1, vt = now() + interval '1 hour',"
        " last_read_at = now() where lo = %s",
        back,
    )
    blocker.commit()
    assert later.rows() == []


def test_sender_that_is_late_keeps_its_ids_from_being_noted_as_settled(race: Race) -> None:
    sender = race.open()
    sender.begin()
    (late,) = sender.column(SEND_GROUP, 1)
    sender.rows("select 1")
    send_and_settle(race, 3 * SIZE)
    assert settled_to(race) <= late
    sender.commit()
    maintain(race)
    assert settled_to(race) <= late
    assert race.main.column("select msg_id from pgmq.read_grouped_head('jobs', 30, 1)") == [late]


def test_ids_that_no_segment_holds_yet_are_not_noted_as_settled(race: Race) -> None:
    """Who has drawn them, and makes the segment later, may be under way."""
    send_and_settle(race, SIZE + 1)
    last = int(race.main.value("select max(hi) from spanmq.segment"))
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", last + 20 * SIZE)
    race.main.rows(SEND_GROUP, 1)
    maintain(race)
    assert settled_to(race) <= last + 1
