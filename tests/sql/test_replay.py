"""The log as history: how long it is kept, what a replay sends again, subscriptions that begin in the past."""

from typing import Any

import psycopg
import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race
from tests.sql.rights import own_role
from tests.sql.segment import SIZE, delete, did, maintain, make_queue, make_sparse, send_past, state_of

REPLAY = "select n, last_id from spanmq.replay('jobs', 'again'{})"
BEFORE = "now() - interval '1 day'"


@pytest.fixture
def race(race: Race) -> Race:
    make_queue(race)
    race.main.rows("select spanmq.set_policy('jobs', '{\"keep\": \"7 days\"}')")
    race.main.rows("select pgmq.create('again')")
    # As if the segment that make_queue() drops had had messages of two days ago.
    race.main.rows("update spanmq_core.upkeep set lost_at = now() - interval '2 days'")
    return race


def replay(race: Race, arguments: str = "") -> tuple[Any, ...]:
    return race.main.rows(REPLAY.format(arguments))[0]


def again(race: Race) -> list[tuple[Any, ...]]:
    return race.main.rows(
        "select (headers->'x-spanmq-replay-of'->>'msg_id')::int, message from pgmq.q_again order by msg_id"
    )


def grow_old(race: Race) -> None:
    """Let eight days pass for what is in the log."""
    for name in race.main.column(
        "select log_name from spanmq_core.segment where queue_id = %s", race.queue_id
    ):
        race.main.rows(f"update spanmq_core.{name} set enqueued_at = enqueued_at - interval '8 days'")
    race.main.rows(
        "update spanmq_core.segment set oldest_at = oldest_at - interval '8 days',"
        " newest_at = newest_at - interval '8 days'"
    )


def test_settled_messages_stay_for_their_time_and_are_sent_again(race: Race) -> None:
    ids = send_past(race, 3 * SIZE)
    delete(race, ids)
    assert did(maintain(race), "truncated segment") == 0
    assert replay(race, ", dry_run => true") == (len(ids), ids[-1])
    assert again(race) == []
    assert replay(race) == (len(ids), ids[-1])
    assert again(race) == [(id_, {"i": i}) for i, id_ in enumerate(ids, 1)]
    [(keep, first_id, size, kept)] = race.main.rows(
        "select keep::text, first_id, bytes, kept_bytes from spanmq.replay_extent('jobs')"
    )
    assert (keep, first_id) == ("7 days", ids[0])
    assert size > kept > 0
    grow_old(race)
    assert did(maintain(race), "truncated segment") >= 2
    # What is gone is said, and not left out.
    assert sqlstate_of(race.main.connection, REPLAY.format(", since => now() - interval '9 days'")) == "MQ064"
    assert sqlstate_of(race.main.connection, REPLAY.format(f", msg_ids => array[{ids[0]}]")) == "MQ064"
    assert replay(race, f", since => {BEFORE}") == (0, None)


def test_what_is_chosen(race: Race) -> None:
    ids = send_past(race, SIZE + 10)
    for arguments, chosen in {
        f", since => {BEFORE}": ids,
        f", until => {BEFORE}": [],
        ", match => '$.i > 260'": ids[260:],
        ", match => '$ ? (@.i <= 2)'": ids[:2],
        ", match => '$.none'": [],
        f", after => {ids[3]}, qty => 5": ids[4:9],
        f", after => {ids[-1]}": [],
        f", msg_ids => array[{ids[-1]}, {ids[2]}, {ids[-1] + 1000}, {ids[2]}]": [ids[2], ids[-1]],
        f", msg_ids => array[{ids[1]}, {ids[3]}], after => {ids[1]}": [ids[3]],
        ", msg_ids => '{}'": [],
    }.items():
        assert replay(race, arguments + ", dry_run => true")[0] == len(chosen), arguments
        race.main.rows("select pgmq.purge_queue('again')")
        assert replay(race, arguments) == (len(chosen), chosen[-1] if chosen else None)
        assert [message for message, _ in again(race)] == chosen


def test_messages_keep_group_and_attempts_and_lose_their_expiry(race: Race) -> None:
    race.main.rows(
        "select spanmq.send_messages('jobs', array['1']::jsonb[],"
        ' array[\'{"x-pgmq-group": "a", "n": 1.10}\']::jsonb[], delay => 600, expires_in => 1200, max_attempts => 3)'
    )
    race.main.rows("select pgmq.send('jobs', '2', '[1]'::jsonb)")
    assert replay(race)[0] == 2
    headers = race.main.column("select headers - 'x-spanmq-replay-of' from pgmq.q_again order by msg_id")
    assert headers == [{"x-pgmq-group": "a", "n": 1.1, "x-spanmq-max-attempts": 3}, {}]
    got = race.main.rows("select message, group_key from spanmq.receive('again', 10)")
    assert got == [(1, "a"), (2, None)]
    assert race.main.value("select uses_limits from spanmq_core.queue where name = 'again'")


def test_replay_needs_both_rights(race: Race) -> None:
    send_past(race, 3)
    results: list[Any] = []
    with own_role(race.main.connection) as role:
        for verb, queue in (("look", "jobs"), ("look", "again"), ("send", "again")):
            race.main.rows("select spanmq.grant_queue(%s, %s, %s)", role, queue, verb)
            session = race.open()
            session.rows(f"set role {role}")
            try:
                results.append(session.rows("select n from spanmq.replay('jobs', 'again')"))
            except psycopg.Error as error:
                results.append(error.sqlstate)
    assert results == ["42P01", "42501", [(3,)]]


def test_what_was_never_published_is_not_replayed(race: Race) -> None:
    # Blocks of tasks that failed, that are not published yet, and of a write that was given up.
    blocks = []
    for epoch in (1, 1, 2, 3):
        [(write, block, name, first, last, at)] = race.main.rows(
            "select * from spanmq.bulk_reserve('jobs', 'w', %s, 5)", epoch
        )
        race.main.rows(
            f"insert into spanmq_core.{name} select id, %s, to_jsonb(id) from generate_series(%s::bigint, %s) id",
            at,
            first,
            last,
        )
        race.main.rows("select spanmq.bulk_seal('jobs', array[%s::bigint])", block)
        blocks.append((write, block, first))
    race.main.rows("select spanmq.bulk_publish('jobs', 'w', 1, %s, array[%s::bigint])", *blocks[1][:2])
    race.main.rows("select spanmq.bulk_close('jobs', 'w', 2)")
    published = list(range(blocks[1][2], blocks[1][2] + 5))
    assert replay(race) == (5, published[-1])
    race.main.rows("select spanmq.create_subscription('past', 'jobs', since => '-infinity')")
    assert race.main.column("select msg_id from pgmq.q_past order by 1") == published
    race.main.rows("select spanmq.bulk_publish('jobs', 'w', 3, %s, array[%s::bigint])", *blocks[3][:2])
    assert len(race.main.column("select msg_id from pgmq.q_past")) == 10


def test_subscription_begins_in_the_past(race: Race) -> None:
    ids = send_past(race, SIZE)
    delete(race, ids)
    group, later = (
        race.main.value("select pgmq.send('jobs', '0', %s::jsonb, %s)", headers, delay)
        for headers, delay in (('{"x-pgmq-group": "a"}', 0), ("{}", 36_000))
    )
    maintain(race)
    race.main.rows(f"select spanmq.create_subscription('past', 'jobs', since => {BEFORE})")
    got = race.main.rows("select msg_id, group_key from spanmq.receive('past', 1000)")
    assert got == [(id_, None) for id_ in ids] + [(group, "a")]
    # What is delayed there is delayed here.
    assert race.main.column("select msg_id from pgmq.q_past where vt > clock_timestamp() + '1 hour'") == [
        later
    ]
    race.main.rows("select pgmq.delete('past', %s::bigint[])", ids)
    assert race.main.value("select spanmq.state('past', %s)", ids[0]) == "completed"
    call = "select spanmq.create_subscription('older', 'jobs', since => now() - interval '3 days')"
    assert sqlstate_of(race.main.connection, call) == "MQ064"
    assert (
        sqlstate_of(race.main.connection, "select spanmq.create_subscription('older', 'jobs', since_id => 1)")
        == "MQ064"
    )
    # By id: within a segment, and where it begins with the next message.
    for name, first in (("within", ids[5]), ("later", later + 1)):
        race.main.rows("select spanmq.create_subscription(%s, 'jobs', since_id => %s)", name, first)
    race.main.rows("select pgmq.send('jobs', '1')")
    assert race.main.column("select msg_id from pgmq.q_within order by 1") == [
        *ids[5:],
        group,
        later,
        later + 1,
    ]
    assert race.main.column("select msg_id from pgmq.q_later") == [later + 1]
    assert race.main.value("select spanmq.state('within', %s)", ids[4]) == "unknown"


def test_rewritten_segment_counts_as_lost_and_a_kept_one_is_not_rewritten(race: Race) -> None:
    _, others = make_sparse(race)
    race.main.rows("select spanmq.set_policy('jobs', '{\"keep\": \"7 days\"}')")
    assert did(maintain(race), "rewrote segment") == 0
    assert replay(race, ", dry_run => true")[0] == 2048 + 10
    race.main.rows("select spanmq.set_policy('jobs', '{\"keep\": null}')")
    assert did(maintain(race), "rewrote segment") == 1
    assert replay(race, ", dry_run => true") == (len(others), others[-1])
    assert sqlstate_of(race.main.connection, REPLAY.format(f", since => {BEFORE}")) == "MQ064"


def test_maintenance_waits_for_a_replay_that_reads_the_segment(race: Race) -> None:
    ids = send_past(race, 2 * SIZE)
    delete(race, ids)
    send_past(race, 1)
    maintain(race)
    race.main.rows("select spanmq.set_policy('jobs', '{\"keep\": null}')")
    replayer = race.open()
    replayer.begin()
    assert replayer.value("select n from spanmq.replay('jobs', 'again', dry_run => true)") == 2 * SIZE + 1
    assert did(maintain(race), "truncated segment") == 0
    # The same transaction still finds all that it counted.
    assert replayer.value("select n from spanmq.replay('jobs', 'again')") == 2 * SIZE + 1
    replayer.commit()
    assert len(again(race)) == 2 * SIZE + 1
    assert did(maintain(race), "truncated segment") == 2
    assert state_of(race, ids[0]) is None
    assert (
        sqlstate_of(race.main.connection, "begin isolation level repeatable read; " + REPLAY.format(""))
        == "MQ003"
    )


def test_replay_waits_for_a_segment_that_is_being_truncated(race: Race) -> None:
    delete(race, send_past(race, 2 * SIZE))
    (last,) = send_past(race, 1)
    race.main.rows("select spanmq.set_policy('jobs', '{\"keep\": null}')")
    worker, replayer = race.open(), race.open()
    for _ in range(30):
        worker.begin()
        if did(worker.rows("select action, detail from spanmq.maintain()"), "truncated segment"):
            break
        worker.commit()
        race.wait_for_other_databases()
    later = replayer.later(REPLAY.format(f", since => {BEFORE}"))
    assert later.waits()
    worker.commit()
    assert sqlstate_of(race.main.connection, later.rows) == "MQ064"
    # Without a time: from where the log has all.
    assert replay(race)[1] == last


def test_replay_after_the_last_id_there_is_finds_nothing(race: Race) -> None:
    send_past(race, 3)
    assert replay(race, ", after => 9223372036854775807") == (0, None)
