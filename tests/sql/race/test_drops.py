"""A queue is dropped while others are at it: they end, with a clear error or without what it was."""

from contextlib import suppress

import psycopg
import pytest
from tests.sql.queue import sqlstate_of
from tests.sql.race.sessions import Race

DROP = "select pgmq.drop_queue('jobs')"
# What waits for the drop, and then is about a queue that is not there.
CALLS = (
    "select spanmq.cancel('jobs', array[256])",
    "select spanmq.set_policy('jobs', '{\"ordered\": true}')",
    "select pgmq.bind_topic('a.b', 'jobs')",
    "select pgmq.enable_notify_insert('jobs')",
    "select spanmq.await_messages('jobs')",
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
    "select spanmq.report_breaker('jobs', 'worker', 5)",
    "select spanmq.report_worker('jobs', 'worker', 5)",
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


@pytest.mark.parametrize("call", CALLS)
def test_call_that_waited_for_the_drop_says_that_there_is_no_queue(race: Race, call: str) -> None:
    race.send(3)
    one, two = race.begun(), race.open()
    one.rows(DROP)
    left = one.value(LEFT)
    later = two.waiting(call)
    one.commit()
    assert sqlstate_of(race.main.connection, later.rows) == "42P01"
    assert two.value(LEFT) == left


@pytest.mark.parametrize(
    ("table", "call"),
    [
        ("pgmq.a_jobs", "select pgmq.archive('jobs', array(select generate_series(256, 300)))"),
        ("spanmq_core.{}", "select pgmq.pop('jobs', 500)"),
        ("spanmq_core.{}", "select * from spanmq.receive('jobs', 500)"),
        ("spanmq_core.{}", "select spanmq.redrive('jobs')"),
    ],
)
def test_drop_does_not_deadlock_with_what_takes_messages(race: Race, table: str, call: str) -> None:
    race.send(300)
    race.main.rows("select spanmq.reject('jobs', lease_id, array[msg_id]) from spanmq.receive('jobs', 1)")
    looker, dropper, taker = race.begun(), race.open(), race.open()
    segment = race.main.value("select log_name from spanmq_core.segment where queue_id = %s", race.queue_id)
    looker.rows(f"lock table {table.format(segment)} in access share mode")
    drop = dropper.waiting(DROP)
    late = taker.later(call)
    late.waits()
    looker.commit()
    assert drop.rows() == [(True,)]
    with suppress(psycopg.errors.UndefinedTable):
        assert late.rows() == []


@pytest.mark.parametrize("call", OVERVIEWS)
def test_drop_hides_no_other_queue(race: Race, call: str) -> None:
    race.main.rows("select pgmq.create('other')")
    race.send(3)
    one, two = race.begun(), race.open()
    one.rows(DROP)
    later = two.waiting(call)
    one.commit()
    assert later.rows() == [("other",)]


def test_drop_of_an_empty_queue_stops_no_doctor(race: Race) -> None:
    one, two = race.begun(), race.open()
    one.rows(DROP)
    later = two.waiting("select 'ok' from spanmq.doctor() where check_name = 'leases'")
    one.commit()
    assert later.rows() == [("ok",)]


@pytest.mark.parametrize("policy", ["{}", '{"max_backlog": 10}'])
def test_drop_and_senders_do_not_deadlock(race: Race, policy: str) -> None:
    race.main.rows("select spanmq.set_policy('jobs', %s)", policy)
    # The first sender also writes the queue's row.
    race.send(1, new_block=False)
    one, two, three = race.begun(), race.open(), race.open()
    one.rows("select pgmq.send('jobs', '1')")
    drop = two.waiting(DROP)
    send = three.waiting("select pgmq.send('jobs', '2')")
    one.commit()
    assert drop.rows() == [(True,)]
    with pytest.raises(psycopg.Error) as raised:
        send.rows()
    assert raised.value.sqlstate != "40P01"
