"""Whole rows through the view of a queue: messages are restored with their ids, their read count or body is changed."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.model.invariants import broken_invariants
from tests.sql.queue import Connection, column, one, rows, sqlstate_of
from tests.sql.race.sessions import Race

INSERT = "insert into pgmq.q_jobs (msg_id, read_ct, vt, message) values"
ROWS = "select msg_id, read_ct, message from pgmq.q_jobs order by 1"


@pytest.fixture
def empty(database: str) -> Iterator[Connection]:
    """A session in autocommit mode, and an empty queue `jobs` that has drawn no id."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pgmq.create('jobs')")
        yield connection


def test_messages_are_restored_with_their_ids(empty: Connection) -> None:
    restored = rows(
        empty,
        "insert into pgmq.q_jobs (msg_id, read_ct, enqueued_at, last_read_at, vt, message, headers) values"
        " (5, 2, '2020-01-01 00:00+00', '2020-01-02 00:00+00', now(), '1', '{\"x-pgmq-group\": \"g\"}'),"
        " (300, 0, '2020-01-03 00:00+00', null, now() + interval '1 hour', '2', null)"
        " returning msg_id, read_ct, extract(year from enqueued_at)::int, last_read_at is not null",
    )
    assert restored == [(5, 2, 2020, True), (300, 0, 2020, False)]
    assert rows(empty, "select msg_id, read_ct, message from pgmq.q_jobs order by 1") == [
        (5, 2, 1),
        (300, 0, 2),
    ]
    assert one(empty, "select pgmq.send('jobs', '3')") == 301
    assert rows(empty, "select msg_id, attempt, group_key from spanmq.receive('jobs', 9)") == [
        (5, 3, "g"),
        (301, 1, None),
    ]
    assert broken_invariants(empty) == []


def test_lower_ids_come_back_in_any_order_and_each_once(empty: Connection) -> None:
    empty.execute(f"{INSERT} (600, 0, now(), '600'), (3, 1, now(), '3'), (299, 0, now(), '299')".encode())
    for again in (3, 299, 600):
        assert sqlstate_of(empty, f"{INSERT} ({again}, 0, now(), '0')") == "23505"
    empty.execute("select pgmq.delete('jobs', 3), pgmq.archive('jobs', 299)")
    assert sqlstate_of(empty, f"{INSERT} (299, 0, now(), '299')") == "23505", "it is in the archive"
    assert sqlstate_of(empty, f"{INSERT} (3, 4, now(), '\"new\"')") == "23505", "the log keeps what was sent"
    empty.execute(f"{INSERT} (3, 4, now(), '3')".encode())
    empty.execute(
        "with again as (delete from pgmq.a_jobs where msg_id = 299 returning msg_id, read_ct, now(), message)"
        " insert into pgmq.q_jobs (msg_id, read_ct, vt, message) select * from again"
    )
    assert rows(empty, ROWS) == [(3, 4, 3), (299, 0, 299), (600, 0, 600)]
    assert column(empty, "select msg_id from pgmq.read('jobs', 0, 9)") == [3, 299, 600]
    assert broken_invariants(empty) == []


NO_MESSAGES = {
    "(0, 0, now(), '1')": "MQ002",
    "(-5, 0, now(), '1')": "MQ002",
    "(9223372036854775807, 0, now(), '1')": "MQ002",
    "(1000000000, 0, now(), '1')": "MQ004",
    "(5, -1, now(), '1')": "MQ002",
    "(5, 2147483647, now(), '1')": "MQ002",
    "(5, 0, 'infinity', '1')": "MQ002",
}


def test_row_that_is_not_a_message_is_refused(empty: Connection) -> None:
    assert {values: sqlstate_of(empty, f"{INSERT} {values}") for values in NO_MESSAGES} == NO_MESSAGES
    assert rows(empty, ROWS) == []


def test_dead_letter_is_not_inserted_beside(empty: Connection) -> None:
    empty.execute("select pgmq.send('jobs', '1')")
    lease = one(empty, "select lease_id from spanmq.receive('jobs')")
    empty.execute("select spanmq.reject('jobs', %s, array[1])", [lease])
    assert sqlstate_of(empty, f"{INSERT} (1, 0, now(), '1')") == "23505"


def test_subscription_gets_new_ids_and_keeps_its_own_messages(empty: Connection) -> None:
    empty.execute("select spanmq.create_subscription('others', 'jobs')")
    empty.execute(f"{INSERT} (5, 3, now(), '5')".encode())
    assert rows(empty, "select msg_id, read_ct, message from pgmq.q_others") == [(5, 0, 5)]
    # What both have does not change for one of them.
    assert sqlstate_of(empty, "update pgmq.q_others set message = '6'") == "MQ060"
    empty.execute("select pgmq.delete('jobs', 5)")
    assert sqlstate_of(empty, f"{INSERT} (5, 0, now(), '6')") == "23505"
    assert sqlstate_of(empty, "insert into pgmq.q_others (msg_id, message) values (6, '6')") == "MQ060"
    assert broken_invariants(empty) == []


def test_columns_of_some_messages_are_updated(empty: Connection) -> None:
    empty.execute("select pgmq.send_batch('jobs', array(select to_jsonb(i) from generate_series(1, 30) i))")
    changed = "update pgmq.q_jobs set {} where msg_id % 3 = 0 returning msg_id"
    ids = list(range(3, 31, 3))
    changes = (
        "read_ct = 7",
        "message = '\"new\"'",
        'headers = \'{"x-pgmq-group": "g"}\'',
        "last_read_at = now()",
    )
    for change in changes:
        assert sorted(column(empty, changed.format(change))) == ids
    assert rows(empty, ROWS) == [(i, 7, "new") if i % 3 == 0 else (i, 0, i) for i in range(1, 31)]
    grouped = "select msg_id from spanmq.receive('jobs', 99) where group_key = 'g' and attempt = 8 order by 1"
    assert column(empty, grouped) == ids
    assert broken_invariants(empty) == []


def test_body_must_fit_the_schema_of_the_queue(empty: Connection) -> None:
    empty.execute("""select spanmq.set_schema('jobs', '{"type": "object"}', checked => true)""")
    empty.execute("select pgmq.send('jobs', '{}')")
    assert sqlstate_of(empty, "update pgmq.q_jobs set message = '1'") == "MQ065"
    assert sqlstate_of(empty, f"{INSERT} (5, 0, now(), '1')") == "MQ065"
    empty.execute("update pgmq.q_jobs set message = '{\"a\": 1}'")
    assert column(empty, "select message from pgmq.q_jobs") == [{"a": 1}]


@pytest.mark.parametrize("change", ["msg_id = msg_id + 1", "enqueued_at = now() - interval '1 day'"])
def test_id_and_time_of_a_message_never_change(empty: Connection, change: str) -> None:
    empty.execute("select pgmq.send('jobs', '1')")
    assert sqlstate_of(empty, f"update pgmq.q_jobs set {change}") == "MQ004"


# Beside others.

CLAIM = (
    "update pgmq.q_jobs set read_ct = read_ct + 1, vt = clock_timestamp() + interval '1 hour'"
    " where msg_id in (select msg_id from pgmq.q_jobs where vt <= clock_timestamp() order by msg_id limit 2)"
    " returning msg_id"
)


def test_each_message_is_claimed_by_one_of_two_sessions(race: Race) -> None:
    ids = race.send(2)
    first, second = race.begun(), race.open()
    assert sorted(first.column(CLAIM)) == ids
    under_way = second.later(CLAIM)
    assert under_way.waits()
    first.commit()
    assert under_way.rows() == []
    assert race.main.column("select read_ct from pgmq.q_jobs") == [1, 1]


def test_message_that_another_session_received_keeps_its_lease(race: Race) -> None:
    ids = race.send(1)
    first, second = race.begun(), race.open()
    ((lease,),) = first.rows("select lease_id from spanmq.receive('jobs')")
    under_way = second.later("update pgmq.q_jobs set read_ct = 9 returning msg_id")
    assert under_way.waits()
    first.commit()
    assert under_way.rows() == []
    acked = race.main.rows("select msg_id, outcome from spanmq.ack('jobs', %s, %s)", lease, ids)
    assert acked == [(ids[0], "acked")]


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_one_id_is_inserted_by_one_of_two_sessions(race: Race, end: str) -> None:
    (last,) = race.send(1)
    race.main.rows("select pgmq.delete('jobs', %s)", last)
    first, second = race.begun(), race.open()
    insert = "insert into pgmq.q_jobs (msg_id, vt, message) values (%s, now(), '1') returning msg_id"
    assert first.column(insert, last) == [last]
    under_way = second.later(insert, last)
    assert under_way.waits()
    getattr(first, end)()
    if end == "commit":
        with pytest.raises(Exception, match="duplicate key"):
            under_way.rows()
    else:
        assert under_way.rows() == [(last,)]
    assert race.main.column("select msg_id from pgmq.q_jobs") == [last]


def test_message_that_was_cancelled_and_acked_can_be_restored(empty: Connection) -> None:
    one(empty, "select pgmq.send('jobs', '1')")
    lease = one(empty, "select lease_id from spanmq.receive('jobs')")
    assert rows(empty, "select * from spanmq.cancel('jobs', '{1}')") == [(1, "cancelling")]
    assert rows(empty, "select * from spanmq.ack('jobs', %s, '{1}')", lease) == [(1, "acked")]
    empty.execute(f"{INSERT} (1, 0, now(), '1')".encode())
    assert column(empty, "select msg_id from spanmq.receive('jobs')") == [1]
