"""Lanes: statements on a queue in use keep their plans, and no lane shows another queue's log too early."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race

from spanmq import schema

LANES = 16
# What a queue must have drawn before it gets a lane.
IN_USE = 1000
# The ids of a queue's first segment.
SEGMENT = 16384
SEND = "select pgmq.send('jobs', jsonb_build_object('i', %s::int))"
SEND_BATCH = (
    "select pgmq.send_batch('{}', array(select jsonb_build_object('i', i) from generate_series(1, {}) i))"
)


@pytest.fixture
def race(race: Race) -> Iterator[Race]:
    race.main.rows("select pgmq.drop_queue('jobs')")
    make_queue(race, "jobs")
    yield race
    assert schema.verify(race.main.connection) == []


def make_queue(race: Race, queue: str) -> None:
    """Make a queue that is in use, and empty."""
    race.main.rows(f"select pgmq.create('{queue}')")
    race.main.rows(SEND_BATCH.format(queue, IN_USE))
    race.main.rows(f"select pgmq.purge_queue('{queue}')")


def maintain(race: Race) -> None:
    while race.main.rows("select * from spanmq.maintain()"):
        pass


def lane_of(race: Race, queue: str = "jobs") -> int | None:
    lane: int | None = race.main.value("select lane from spanmq_core.queue where name = %s", queue)
    return lane


def shown(race: Race) -> dict[int, str]:
    """Return the log that each lane shows, as the catalog knows it."""
    return dict(
        race.main.rows(
            "select substr(v.view_name, 6)::int, v.table_name from information_schema.view_table_usage v"
            " where v.view_schema = 'spanmq_core' and v.view_name ~ '^lane_[0-9]+$'"
        )
    )


def leave_segment(race: Race) -> None:
    """Send into the next segment, so that the queue's row names that."""
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", SEGMENT + 9)
    race.main.rows(SEND, 0)


def test_lane_serves_every_call(race: Race) -> None:
    maintain(race)
    assert shown(race) == {
        lane_of(race): race.main.value("select log_name from spanmq_core.queue where name = 'jobs'")
    }
    first = race.main.value(SEND, 1)
    race.main.rows(SEND_BATCH.format("jobs", 30))
    one = "select msg_id, message->>'i' from {}"
    assert race.main.rows(one.format("pgmq.read('jobs', 30, 1)")) == [(first, "1")]
    assert race.main.rows(one.format("spanmq.receive('jobs')")) == [(first + 1, "1")]
    assert race.main.rows(one.format("pgmq.read('jobs', 30, 3)")) == [
        (first + 2 + i, str(i + 2)) for i in range(3)
    ]
    race.main.rows("select pgmq.send('jobs', '{\"i\": 7}', '{\"x-pgmq-group\": \"a\"}'::jsonb)")
    race.main.rows("select pgmq.delete('jobs', array(select msg_id from pgmq.q_jobs where headers is null))")
    assert race.main.rows(one.format("pgmq.read_grouped_head('jobs', 30, 1)")) == [(first + 31, "7")]


@pytest.mark.parametrize("policy", ["{}", '{"ordered": true}', '{"max_in_flight": 100}'])
@pytest.mark.parametrize("is_newest", [True, False])
def test_messages_that_do_not_follow_each_other_come_with_their_bodies(
    race: Race, policy: str, is_newest: bool
) -> None:
    maintain(race)
    race.main.rows("select spanmq.set_policy('jobs', %s::jsonb)", policy)
    first = race.main.column(SEND_BATCH.format("jobs", 6))[0]
    if not is_newest:
        leave_segment(race)
        race.main.rows("select pgmq.delete('jobs', %s)", SEGMENT + 10)
        maintain(race)
    assert lane_of(race) is not None
    race.main.rows("select pgmq.delete('jobs', array[%s, %s])", first + 1, first + 3)
    bodies = [(first + place, str(place + 1)) for place in (0, 2, 4, 5)]
    some = "select msg_id, message->>'i' from {}"
    hidden = race.main.rows(some.format("pgmq.set_vt('jobs', %s::bigint[], 0)"), [id_ for id_, _ in bodies])
    assert sorted(hidden) == bodies
    assert race.main.rows(some.format("spanmq.receive('jobs', 2)")) == bodies[:2]
    if "ordered" not in policy:
        assert race.main.rows(some.format("pgmq.pop('jobs', 10)")) == bodies[2:]


def warm_up(race: Race) -> None:
    """Have the statements of a receive planned."""
    race.main.rows(SEND_BATCH.format("jobs", 2))
    for _ in range(3):
        race.main.rows("select spanmq.receive('jobs', 10, 0)")
    race.main.rows("select pgmq.purge_queue('jobs')")


def test_receive_of_many_that_finds_one_gives_all_of_it(race: Race) -> None:
    maintain(race)
    assert lane_of(race) is not None
    warm_up(race)
    sent = race.main.value("select pgmq.send('jobs', '{\"i\": 7}', '{\"x-pgmq-group\": \"a\"}'::jsonb)")
    receive = (
        "select lease_id, msg_id, read_ct, message->>'i', headers->>'x-pgmq-group', slot, attempt, group_key,"
        " last_error, vt - last_read_at = interval '60 s',"
        " enqueued_at = (select q.enqueued_at from pgmq.q_jobs q) from spanmq.receive('jobs', 10, 60)"
    )
    [(lease, *first)] = race.main.rows(receive)
    assert first == [sent, 1, "7", "a", 1, 1, "a", None, True, True]
    race.main.rows("select spanmq.nack('jobs', %s, %s, 'boom', retry_in => 0)", lease, [sent])
    [(lease, *again)] = race.main.rows(receive)
    assert again == [sent, 2, "7", "a", 1, 2, "a", "boom", True, True]
    assert race.main.rows("select outcome from spanmq.ack('jobs', %s, %s)", lease, [sent]) == [("acked",)]


def test_receive_of_many_finds_one_of_an_older_segment(race: Race) -> None:
    maintain(race)
    warm_up(race)
    sent = race.main.value(SEND, 1)
    leave_segment(race)
    race.main.rows("select pgmq.delete('jobs', array[%s])", SEGMENT + 10)
    maintain(race)
    assert lane_of(race) is not None
    assert race.main.rows("select msg_id, message->>'i' from spanmq.receive('jobs', 10)") == [(sent, "1")]


def test_receive_passes_over_one_message_without_a_row(race: Race) -> None:
    maintain(race)
    warm_up(race)
    log = race.main.value("select log_name from spanmq_core.queue where name = 'jobs'")
    lost = race.main.value(SEND, 1)
    race.main.rows(f"delete from spanmq_core.{log} where msg_id = {lost}")
    assert race.main.rows("select msg_id from spanmq.receive('jobs', 10)") == []
    assert race.main.value("select count(*) from spanmq_core.unsettled") == 0
    kept = race.main.value(SEND, 2)
    assert race.main.rows("select msg_id from spanmq.receive('jobs', 10)") == [(kept,)]


def test_lane_serves_the_archive(race: Race) -> None:
    maintain(race)
    first = race.main.value(SEND, 0)
    race.main.rows(SEND_BATCH.format("jobs", 6))
    race.main.rows("select pgmq.read('jobs', 0, 2)")
    race.main.rows("select pgmq.read('jobs', 30, 4)")
    # One alone, and with different numbers of reads; another in later; one that is not there.
    before = "msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers"
    sent = race.main.rows(f"select {before} from pgmq.q_jobs order by 1")
    assert race.main.value("select pgmq.archive('jobs', %s::bigint)", first)
    ids = [first + 1, first + 2, first + 3, first + 9]
    assert race.main.column("select pgmq.archive('jobs', %s::bigint[])", ids) == ids[:3]
    retried = first + 4
    race.main.rows("select pgmq.set_vt('jobs', %s::bigint, 0)", retried)
    [(lease,)] = race.main.rows("select lease_id from spanmq.receive('jobs', 1, 60)")
    race.main.rows("select spanmq.nack('jobs', %s, %s, 'boom', retry_in => 0)", lease, [retried])
    sent[4:5] = race.main.rows(f"select {before} from pgmq.q_jobs where msg_id = %s", retried)
    assert race.main.column("select pgmq.archive('jobs', %s::bigint[])", [retried, first + 5]) == [
        first + 5,
        retried,
    ]
    assert race.main.rows(f"select {before} from pgmq.a_jobs order by 1") == sent[:6]
    assert race.main.column("select msg_id from pgmq.q_jobs") == [first + 6]


def test_archive_that_was_renamed_has_no_place_in_the_lane(race: Race) -> None:
    maintain(race)
    archive = "select pgmq.archive('jobs', %s::bigint)"
    first, second, third = (race.main.value(SEND, i) for i in range(3))
    race.main.rows(archive, first)
    race.main.rows("alter table pgmq.a_jobs rename to old_jobs")
    assert sqlstate_of(race.main.connection, lambda: race.main.rows(archive, second)) == "42P01"
    race.main.rows("select pgmq.create('jobs')")
    assert race.main.value(archive, second)
    assert race.main.column("select pgmq.archive('jobs', array[%s])", third) == [third]
    assert race.main.column("select msg_id from pgmq.a_jobs order by 1") == [second, third]
    assert race.main.column("select msg_id from pgmq.old_jobs") == [first]
    race.main.rows("drop table pgmq.old_jobs")


def test_lane_archives_by_no_trigger_of_another_role(race: Race) -> None:
    maintain(race)
    archive = "select pgmq.archive('jobs', %s::bigint)"
    first, second = race.main.value(SEND, 1), race.main.value(SEND, 2)
    assert race.main.value(archive, first)
    race.main.rows(
        "create function public.fires() returns trigger language plpgsql as 'begin return new; end';"
        " alter function public.fires() owner to pg_monitor;"
        " create trigger fires before insert on pgmq.a_jobs for each statement execute function public.fires()"
    )
    assert sqlstate_of(race.main.connection, lambda: race.main.rows(archive, second)) == "42501"
    race.main.rows("drop function public.fires() cascade")
    assert race.main.value(archive, second)


def test_queue_of_few_messages_has_no_lane(race: Race) -> None:
    race.main.rows("select pgmq.create('idle'), pgmq.send('idle', '{}')")
    maintain(race)
    assert lane_of(race, "idle") is None
    assert lane_of(race) is not None


def test_lane_moves_on_with_the_segment(race: Race) -> None:
    maintain(race)
    race.main.rows(SEND, 1)
    leave_segment(race)
    assert lane_of(race) is None
    maintain(race)
    # Nobody in another database is asked about: its snapshot may have kept the first lane for now.
    assert shown(race)[lane_of(race) or 0] == race.main.value(
        "select log_name from spanmq_core.queue where name = 'jobs'"
    )
    # The first message lies in a segment that no lane shows.
    one = "select message->>'i' from spanmq.receive('jobs')"
    assert [race.main.value(one), race.main.value(one)] == ["1", "0"]


def test_lane_stays_as_long_as_a_snapshot_knows_it(race: Race) -> None:
    maintain(race)
    known = lane_of(race)
    before = shown(race)
    sent = race.main.value(SEND, 1)
    reader = race.looking()
    leave_segment(race)
    maintain(race)
    assert shown(race)[known or 0] == before[known or 0]
    assert lane_of(race) not in (None, known)
    # It still takes the name of the lane from the queue's old row.
    assert reader.rows("select msg_id, message->>'i' from spanmq.receive('jobs')") == [(sent, "1")]
    reader.commit()


def test_lane_of_dropped_queue_waits_for_snapshots(race: Race) -> None:
    maintain(race)
    known = lane_of(race)
    sender = race.looking()
    race.main.rows("select pgmq.drop_queue('jobs')")
    make_queue(race, "others")
    maintain(race)
    assert lane_of(race, "others") not in (None, known)
    # Its row of the queue is the old one. In no case may the message go into another queue's log.
    with pytest.raises(psycopg.Error):
        sender.rows(SEND, 1)
    sender.rollback()
    assert race.main.value("select count(*) from pgmq.q_others") == 0
    make_queue(race, "jobs")


def test_without_a_free_lane_everything_goes_on(race: Race) -> None:
    holder = race.looking()
    race.main.rows(
        f"insert into spanmq_core.lane (lane, log_name) select lane, '' from generate_series(1, {LANES}) lane"
    )
    maintain(race)
    assert lane_of(race) is None
    sent = race.main.value(SEND, 1)
    assert race.main.rows("select msg_id, message->>'i' from pgmq.read('jobs', 30, 1)") == [(sent, "1")]
    holder.commit()


def test_numbers_of_another_server_keep_no_lane(race: Race) -> None:
    # A restore brings transaction ids that are far in the future here.
    race.main.rows("insert into spanmq_core.lane values (1, '', '999999999999')")
    maintain(race)
    kept = "select lane from spanmq_core.lane where free_from_xid > pg_current_xact_id()"
    assert race.main.column(kept) == []


def test_open_transaction_on_a_lane_holds_nobody_up(race: Race) -> None:
    maintain(race)
    known = lane_of(race)
    sender = race.begun()
    sender.rows(SEND, 1)
    leave_segment(race)
    maintain(race)
    assert known in shown(race)
    assert race.main.value(SEND, 2) is not None
    sender.commit()
    assert race.main.column("select message->>'i' from pgmq.read('jobs', 30, 9) order by 1") == [
        "0",
        "1",
        "2",
    ]
