"""A queue is dropped while others are at it: they end, with a clear error or without what it was."""

from contextlib import suppress

import psycopg
import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race
from tests.sql.segment import maintain

DROP = "select pgmq.drop_queue('jobs')"
# What waits for the drop, and then is about a queue that is not there.
CALLS = (
    "select spanmq.cancel('jobs', array[256])",
    "select spanmq.set_policy('jobs', '{\"ordered\": true}')",
    "select pgmq.bind_topic('a.b', 'jobs')",
    "select pgmq.enable_notify_insert('jobs')",
    "select spanmq.bulk_reserve('jobs', 'writer', 0, 5)",
    "select spanmq.list_segments('jobs')",
    "select pgmq.metrics('jobs')",
    "select spanmq.peek('jobs')",
    "select pgmq.purge_queue('jobs')",
    "select spanmq.create_batch('jobs', '1')",
    "select spanmq.schedule('tick', 'jobs', '* * * * *', '1')",
    "select spanmq.store_result('jobs', 1, '1')",
    "select spanmq.set_category_rule('odd', 'BUSINESS', error => 'odd', queue => 'jobs')",
    "select spanmq.set_category_policy('jobs', 'TRANSIENT', '{}')",
    "select spanmq.set_sqs_queue('jobs')",
    "select spanmq.begin_pipeline_run('export', 'jobs')",
    "select spanmq.note_export('jobs', 'lake', '{}')",
    "select spanmq.grant_queue('public', 'jobs', 'send')",
    "select spanmq.revoke_queue('public', 'jobs', 'send')",
)
# What is about all queues.
OVERVIEWS = (
    "select queue_name from pgmq.metrics_all()",
    "select queue from spanmq.health()",
    "select 'other' from spanmq.doctor() where check_name = 'leases'",
    "select queue from spanmq.latest_statistics()",
)
LEFT = """
    select (select count(*) from pg_class where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace))
           + (select count(*) from pg_proc where pronamespace = 'spanmq_call'::regnamespace)
"""


def test_call_that_waited_for_the_drop_says_that_there_is_no_queue(race: Race) -> None:
    for call in CALLS:
        race.send(3)
        one, two = race.begun(), race.open()
        one.rows(DROP)
        left = one.value(LEFT)
        later = two.waiting(call)
        one.commit()
        assert sqlstate_of(race.main.connection, later.rows) == "42P01", call
        assert two.value(LEFT) == left, call
        race.take("jobs")


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("call", ["archive('jobs', %s)", "archive('jobs', array[%s])"])
def test_archive_that_waited_puts_nothing_into_the_archive_of_a_queue_of_the_same_name(
    race: Race, call: str, isolation: str
) -> None:
    first, *_ = race.send(4)
    race.lease(3)
    one, two = race.begun(), race.open()
    # It keeps the row of the lease by what it deletes, and the log by what it reads: the drop leaves both.
    one.rows("select spanmq.receive('jobs', 1)")
    one.rows("select pgmq.delete('jobs', array[%s, %s, %s])", first, first + 1, first + 2)
    two.begin(isolation)
    later = two.waiting(f"select pgmq.{call}", first)
    race.main.rows(DROP)
    race.main.rows("select pgmq.create('jobs')")
    # The new archive has a message of the same id.
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', %s)", first - 1)
    race.main.rows("select pgmq.archive('jobs', pgmq.send('jobs', '0'))")
    one.rollback()
    assert sqlstate_of(race.main.connection, later.rows) == "42P01"
    two.rollback()
    assert race.main.rows("select msg_id, message from pgmq.a_jobs") == [(first, 0)]


def test_drop_hides_no_other_queue(race: Race) -> None:
    race.main.rows("select pgmq.create('other')")
    for call in OVERVIEWS:
        race.send(3)
        one, two = race.begun(), race.open()
        one.rows(DROP)
        later = two.waiting(call)
        one.commit()
        assert later.rows() == [("other",)], call
        race.take("jobs")


def test_report_that_waited_for_the_drop_is_about_the_other_queues(race: Race) -> None:
    race.main.rows("select pgmq.create('other')")
    one, two = race.begun(), race.open()
    one.rows(DROP)
    later = two.waiting("select spanmq.report_worker('{jobs,other}', 'worker', 5)")
    one.commit()
    later.rows()
    reports = (
        "select q.name from spanmq_core.worker w left join spanmq_core.queue q on q.queue_id = w.queue_id"
    )
    assert race.main.column(reports) == ["other"]


def test_drop_of_an_empty_queue_stops_no_doctor(race: Race) -> None:
    one, two = race.begun(), race.open()
    one.rows(DROP)
    later = two.waiting("select 'ok' from spanmq.doctor() where check_name = 'leases'")
    one.commit()
    assert later.rows() == [("ok",)]


@pytest.mark.parametrize("table", ["pgmq.a_jobs", "pgmq.q_jobs"])
def test_drop_that_waits_keeps_nobody_waiting(race: Race, table: str) -> None:
    # pg_dump holds such locks for hours.
    (first,) = race.send(1)
    looker, dropper, user = race.begun(), race.open(), race.open()
    looker.rows(f"select count(*) from {table}")
    drop = dropper.waiting(DROP)
    (second,) = user.column("select pgmq.send('jobs', '2')")
    assert user.column("select msg_id from spanmq.receive('jobs', 2)") == [first, second]
    assert user.column("select pgmq.delete('jobs', %s::bigint)", first) == [True]
    assert drop.waits()
    looker.commit()
    assert drop.rows() == [(True,)]


def test_drop_that_waits_ends_at_the_lock_timeout_of_the_session(race: Race) -> None:
    looker, dropper = race.begun(), race.begun()
    looker.rows("select count(*) from pgmq.a_jobs")
    dropper.rows("set lock_timeout = '200ms'")
    assert sqlstate_of(race.main.connection, lambda: dropper.rows(DROP)) == "55P03"
    dropper.rollback()
    looker.commit()
    assert race.main.value("select pgmq.send('jobs', '1')")


# As autovacuum does where it truncates a table.
LOCK_STATE = "lock table spanmq_core.state in access exclusive mode"


def test_drop_waits_while_a_table_of_all_queues_is_truncated(race: Race) -> None:
    race.send(3)
    vacuum, dropper = race.begun(), race.open()
    vacuum.rows(LOCK_STATE)
    drop = dropper.waiting(DROP)
    vacuum.commit()
    assert drop.rows() == [(True,)]
    assert race.main.value("select count(*) from spanmq_core.state where queue_id = %s", race.queue_id) == 0


def test_maintenance_goes_on_while_a_table_of_all_queues_is_truncated(race: Race) -> None:
    maintain(race)
    vacuum = race.begun()
    vacuum.rows(LOCK_STATE)
    assert race.main.rows("select * from spanmq.maintain()") == []
    vacuum.commit()


@pytest.mark.parametrize("policy", ["{}", '{"max_backlog": 10}'])
@pytest.mark.parametrize("n_before", [0, 1])
def test_sender_that_waits_for_the_sequence_of_a_dropped_queue_says_so(
    race: Race, policy: str, n_before: int
) -> None:
    race.main.rows("select spanmq.set_policy('jobs', %s)", policy)
    if n_before:
        race.send(n_before, new_block=False)
    dropper, sender = race.begun(), race.open()
    dropper.rows(DROP)
    send = sender.waiting("select pgmq.send('jobs', '2')")
    dropper.rows("select pgmq.create('jobs')")
    dropper.commit()
    assert sqlstate_of(race.main.connection, send.rows) == "42P01"
    assert race.main.column("select msg_id from pgmq.q_jobs") == []


@pytest.mark.parametrize("order", [(0, -1), (-1, 0)])
def test_drop_does_not_wait_for_a_consumer_of_two_segments(race: Race, order: tuple[int, int]) -> None:
    race.main.rows("select setval('pgmq.q_jobs_msg_id_seq', 16380)")
    ids = race.send(10, new_block=False)
    hide = "select msg_id from pgmq.set_vt('jobs', %s::bigint, 60)"
    consumer, dropper = race.begun(), race.begun()
    assert consumer.column(hide, ids[order[0]]) == [ids[order[0]]]
    assert dropper.column(DROP) == [True]
    # It has found the queue, and waits for what the drop has removed.
    hiding = consumer.waiting(hide, ids[order[1]])
    dropper.commit()
    with suppress(psycopg.errors.UndefinedTable):
        assert hiding.rows() == []


ENDINGS = {
    "delete": "select pgmq.delete('jobs', %(ids)s::bigint[])",
    "nack": "select spanmq.nack('jobs', %(lease)s, %(ids)s::bigint[], 'boom')",
    "reject": "select spanmq.reject('jobs', %(lease)s, %(ids)s::bigint[], 'boom')",
    "redrive": "select spanmq.redrive('jobs')",
    "read": "select pgmq.read('jobs', 30, 10)",
    "read grouped": "select pgmq.read_grouped('jobs', 30, 10)",
}


@pytest.mark.parametrize("fate", ["commit", "rollback"])
@pytest.mark.parametrize("act", ENDINGS)
def test_what_is_open_at_a_drop_leaves_nothing(race: Race, act: str, fate: str) -> None:
    dead, *ids = race.send(5)
    race.main.rows("select spanmq.reject('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 1)")
    lease = race.lease(2)
    # The first read by group is noted in the queue's row, for which a drop waits.
    race.main.rows("select pgmq.read_grouped('jobs', 30, 0)")
    other = race.begun()
    other.rows(ENDINGS[act], {"ids": ids[:2], "lease": lease})
    assert race.main.column(DROP) == [True]
    race.main.rows("select pgmq.create('jobs')")
    (sent,) = race.main.column("select pgmq.send('jobs', '1')")
    other.end(fate)
    assert race.left() == [sent] != [dead]
    maintain(race)
    assert race.main.rows("select * from spanmq_core.dropped_queue") == []
    assert race.main.column("select distinct queue_id from spanmq_core.state") != [race.queue_id]
    for table in ("later", "dead_letter", "failure", "segment", "lock"):
        assert race.queue_id not in race.main.column(f"select queue_id from spanmq_core.{table}")


def test_dropped_queue_stays_known_while_what_was_open_is(race: Race) -> None:
    other = race.looking()
    race.main.rows(DROP)
    maintain(race)
    assert race.main.value("select name from spanmq_core.dropped_queue") == "jobs"
    other.commit()
    maintain(race)
    assert race.main.value("select name from spanmq_core.dropped_queue") is None
