"""Subscriptions: every message of a queue once more, in a queue of one's own, without a second copy."""

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from tests.patience import WAIT_SECONDS
from tests.sql.model.invariants import broken_invariants
from tests.sql.race.sessions import Race

KINDS = ["create", "create_partitioned"]


@pytest.fixture(params=KINDS)
def any_race(database: str, request: pytest.FixtureRequest) -> Iterator[Race]:
    with Race(database, kind=request.param) as opened:
        yield opened
        assert broken_invariants(opened.main.connection) == []


def subscribe(race: Race, name: str = "lake", *, waiting: bool = False) -> None:
    race.main.rows("select spanmq.create_subscription(%s, 'jobs', %s)", name, waiting)


def ids_in(race: Race, queue: str) -> list[int]:
    return race.main.column(f"select msg_id from pgmq.q_{queue} order by msg_id")


def copy_rows(race: Race, log: str, first: int, last: int, at: object, headers: str = "null") -> None:
    """Write rows into the log, as who was given the ids."""
    insert = sql.SQL(
        "insert into spanmq_core.{} select i, %s, '1', {} from generate_series(%s::bigint, %s) i"
    )
    race.main.connection.execute(insert.format(sql.Identifier(log), sql.SQL(headers)), [at, first, last])


def refused(race: Race, statement: str, sqlstate: str) -> str:
    with pytest.raises(psycopg.Error) as raised:
        race.main.rows(statement)
    assert raised.value.sqlstate == sqlstate
    return str(raised.value)


def test_every_message_of_the_queue_comes_whatever_its_workers_do(any_race: Race) -> None:
    race = any_race
    race.main.rows("select pgmq.send('jobs', '0')")
    subscribe(race)
    race.main.rows("select pgmq.send('jobs', '1')")
    race.main.rows("select pgmq.send_batch('jobs', array(select to_jsonb(i) from generate_series(2, 600) i))")
    assert len(race.main.rows("select * from pgmq.pop('jobs', 1000)")) == 601
    assert race.main.value("select queue_length from pgmq.metrics('lake')") == 600
    leased = race.main.rows("select msg_id, message, lease_id from spanmq.receive('lake', 1000)")
    assert [(row[0], row[1]) for row in leased] == [(i + 1, i) for i in range(1, 601)]
    ids = [row[0] for row in leased]
    assert len(race.main.rows("select * from spanmq.ack('lake', %s, %s)", leased[0][2], ids)) == 600
    assert ids_in(race, "lake") == []


WAYS = {
    "send": "select pgmq.send('jobs', '1')",
    "headers": """select pgmq.send('jobs', '1', '{"x-pgmq-group": "g"}'::jsonb)""",
    "delay": "select pgmq.send('jobs', '1', 3600)",
    "batch": "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]))",
    "batch with groups": """select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[3]),
        array['{"x-pgmq-group": "a"}', '{"x-pgmq-group": "b"}', null]::jsonb[], 60)""",
    "priority": "select spanmq.send_messages('jobs', array['1']::jsonb[], priority => 7)",
    "expiry": "select spanmq.send_messages('jobs', array['1']::jsonb[], expires_in => 9, max_attempts => 2)",
    "deduplication": "select spanmq.send_messages('jobs', array['1', '2']::jsonb[], dedup_ids => '{a,a}')",
    "ordered": "select spanmq.send_messages('jobs', array['1']::jsonb[], ordered => true)",
    "topic": "select pgmq.bind_topic('a.*', 'jobs'), pgmq.send_topic('a.b', '1')",
    "COPY": """with run as materialized (select * from spanmq.copy_begin('jobs', 2))
        select first_id, last_id, log_table, enqueued_at from run""",
}
ROWS = """
    select s.msg_id, s.vt, s.attempts, s.group_hash, s.group_key, s.priority
    from spanmq_core.unsettled s join spanmq_core.queue q on q.queue_id = s.queue_id where q.name = %s
    order by s.msg_id
"""


@pytest.mark.parametrize("way", WAYS)
def test_all_ways_of_sending_publish_to_subscriptions_too(any_race: Race, way: str) -> None:
    race = any_race
    subscribe(race)
    subscribe(race, "audit")
    race.main.begin()
    sent = race.main.rows(WAYS[way])
    if way == "COPY":
        first, last, log, at = sent[0]
        copy_rows(race, log, first, last, at)
        race.main.rows(
            "select spanmq.copy_publish('jobs', array[%s::bigint], array[%s::bigint])", first, last
        )
    race.main.commit()
    of = {name: race.main.rows(ROWS, name) for name in ("jobs", "lake", "audit")}
    assert of["jobs"]
    assert of["lake"] == of["jobs"]
    assert of["audit"] == of["jobs"]
    noted = """
        select distinct uses_priority, uses_limits,
               (select count(*) from spanmq_core.expiry e where e.queue_id = q.queue_id)
        from spanmq_core.queue q
    """
    assert len(race.main.rows(noted)) == 1


def test_bulk_write_publishes_to_subscriptions_too(any_race: Race) -> None:
    race = any_race
    subscribe(race)
    for epoch, headers in enumerate(("null", """'{"x-pgmq-group": "g", "x-spanmq-max-attempts": 3}'""")):
        write, block, _, _ = race.reserve(300, epoch, headers)
        publish = "select spanmq.bulk_publish('jobs', 'w', %s, %s, array[%s::bigint])"
        assert race.main.value(publish, epoch, write, block) == 300
    assert ids_in(race, "lake") == ids_in(race, "jobs") == list(range(1, 601))
    assert race.main.value("select uses_limits from spanmq_core.queue where name = 'lake'")


def test_subscription_may_begin_with_what_is_unsettled(any_race: Race) -> None:
    race = any_race
    race.main.rows(
        """select pgmq.send_batch('jobs', array(select to_jsonb(i) from generate_series(1, 300) i)),
                  pgmq.send('jobs', '301', '{"x-pgmq-group": "g"}'::jsonb, 3600),
                  spanmq.send_messages('jobs', array['302']::jsonb[], expires_in => 3600)"""
    )
    race.main.rows("select pgmq.delete('jobs', array[1, 150]::bigint[])")
    lease = race.lease(100)
    race.main.rows("select pgmq.delete('jobs', 60), spanmq.nack('jobs', %s, array[61]::bigint[])", lease)
    subscribe(race)
    subscribe(race, "all_of_it", waiting=True)
    left = [i for i in range(2, 303) if i not in (60, 150)]
    assert ids_in(race, "all_of_it") == left
    assert ids_in(race, "lake") == []
    # What is retried or leased there is new here; what is delayed stays so.
    read = race.main.rows("select msg_id, read_ct from pgmq.read('all_of_it', 30, 1000)")
    assert read == [(i, 1) for i in left if i != 301]
    expiries = "select name from spanmq_core.expiry e join spanmq_core.queue q using (queue_id) order by 1"
    assert race.main.column(expiries) == ["all_of_it", "jobs"]
    assert race.main.value("select spanmq.state('lake', 2)") == "unknown"
    assert race.main.value("select spanmq.state('all_of_it', 301)") == "delayed"


def test_what_it_is_not_for_is_refused(race: Race) -> None:
    subscribe(race)
    for send in (
        "select pgmq.send('lake', '1')",
        """select pgmq.send('lake', '1', '{"a": 1}'::jsonb, 5)""",
        "select pgmq.send_batch('lake', array['1']::jsonb[])",
        "select spanmq.send_messages('lake', array['1']::jsonb[])",
        "select spanmq.copy_begin('lake', 1)",
        "select spanmq.bulk_reserve('lake', 'w', 1, 1)",
        "select spanmq.schedule('s', 'lake', '* * * * *', '1', time_zone => 'UTC')",
        "select pgmq.bind_topic('a.*', 'lake')",
    ):
        said = refused(race, send, "MQ060")
        assert "Send into queue jobs" in said, send
    assert "Subscribe to queue jobs" in refused(
        race, "select spanmq.create_subscription('more', 'lake')", "MQ060"
    )
    assert "lake" in refused(race, "select pgmq.drop_queue('jobs')", "MQ060")
    race.main.begin("repeatable read")
    refused(race, "select spanmq.create_subscription('x', 'jobs')", "MQ003")
    race.main.rollback()
    subscribe(race)  # there already: a notice
    assert race.main.rows("select subscription, queue_name from spanmq.list_subscriptions('jobs')") == [
        ("lake", "jobs")
    ]
    assert race.main.column("select queue_name from pgmq.list_queues()") == ["jobs", "lake"]


# All but segments.
RELATIONS = """
    select relname from pg_class
    where relnamespace::regnamespace::text ~ 'mq$' and relname !~ '^log_[0-9]+_' order by 1
"""


def test_queues_of_a_log_are_dropped_one_by_one(any_race: Race) -> None:
    race = any_race
    before = race.main.column(RELATIONS)
    subscribe(race)
    subscribe(race, "audit")
    race.send(300)
    race.main.rows("select spanmq.receive('lake', 10), spanmq.await_messages('{lake}', gen_random_uuid())")
    race.main.rows("select pgmq.drop_queue('lake')")
    race.send(1)
    assert ids_in(race, "audit") == ids_in(race, "jobs")
    race.main.rows("select pgmq.drop_queue('audit')")
    assert len(race.send(1)) == 1
    assert race.main.column(RELATIONS) == before
    race.main.rows("select pgmq.drop_queue('jobs')")
    for table in ("state", "later", "segment", "subscription", "queue"):
        assert race.main.value(f"select count(*) from spanmq_core.{table}") == 0


def test_each_has_its_own_archive_policy_and_dead_letters(any_race: Race) -> None:
    race = any_race
    subscribe(race)
    race.main.rows("""select spanmq.set_policy('lake', '{"archive_on_ack": true, "max_attempts": 1}')""")
    race.send(3, new_block=False)
    lease = race.main.value("select lease_id from spanmq.receive('lake', 3)")
    race.main.rows("select * from spanmq.ack('lake', %s, array[1]::bigint[])", lease)
    race.main.rows("select * from spanmq.nack('lake', %s, array[2, 3]::bigint[], error => 'boom')", lease)
    assert race.main.column("select msg_id from pgmq.a_lake") == [1]
    assert race.main.column("select msg_id from pgmq.a_jobs") == []
    assert race.main.column("select msg_id from spanmq.dead_letters('lake')") == [2, 3]
    race.main.rows("select pgmq.purge_queue('jobs')")
    race.main.rows("select spanmq.redrive('lake', delay => 0)")
    race.main.rows("""select spanmq.set_policy('lake', '{"max_attempts": 9, "backoff_base": 0}')""")
    lease = race.main.value("select lease_id from spanmq.receive('lake', 3)")
    race.main.rows("select * from spanmq.nack('lake', %s, array[2, 3]::bigint[], error => 'again')", lease)
    assert race.main.rows("select msg_id, message, last_error from spanmq.receive('lake', 9)") == [
        (2, 2, "again"),
        (3, 3, "again"),
    ]


def test_message_of_two_queues_is_not_repaired_for_one(race: Race) -> None:
    subscribe(race)
    race.send(2, new_block=False)
    lease = race.lease(2)
    race.main.rows("select * from spanmq.reject('jobs', %s, array[1, 2]::bigint[])", lease)
    refused(race, "select spanmq.redrive_message('jobs', 1, '\"mended\"', delay => 0)", "MQ060")
    # As it is, it may go back; and when the others are done with it, anything may.
    race.main.rows("select spanmq.redrive_message('jobs', 2, delay => 0)")
    lake = race.main.value("select lease_id from spanmq.receive('lake', 1)")
    refused(race, "select spanmq.redrive_message('jobs', 1, '\"mended\"', delay => 0)", "MQ060")
    race.main.rows("select * from spanmq.reject('lake', %s, array[1]::bigint[])", lake)
    refused(race, "select spanmq.redrive_message('jobs', 1, '\"mended\"', delay => 0)", "MQ060")
    race.main.rows("select spanmq.purge_dead_letters('lake')")
    race.main.rows("select spanmq.redrive_message('jobs', 1, '\"mended\"', delay => 0)")
    assert race.main.rows("select msg_id, message from spanmq.receive('jobs', 9)") == [(1, "mended"), (2, 2)]


def test_subscription_does_not_change_what_its_queue_keeps(race: Race) -> None:
    race.main.rows("""select spanmq.set_policy('jobs', '{"keep": "7 days"}')""")
    subscribe(race)
    race.send(1, new_block=False)
    race.main.rows("select pgmq.delete('jobs', 1)")
    lease = race.main.value("select lease_id from spanmq.receive('lake', 1)")
    race.main.rows("select * from spanmq.reject('lake', %s, array[1]::bigint[])", lease)
    refused(race, "select spanmq.redrive_message('lake', 1, '\"forged\"', delay => 0)", "MQ060")
    race.main.rows("select spanmq.redrive_message('lake', 1, delay => 0)")
    assert race.main.rows("select msg_id, message from spanmq.receive('lake', 9)") == [(1, 1)]


def test_who_waits_for_a_subscription_is_woken(race: Race) -> None:
    subscribe(race)
    waiter = race.open()
    key = waiter.value("select gen_random_uuid()")
    channel = waiter.value("select channel from spanmq.await_messages('{lake}', %s)", key)
    waiter.rows(f'listen "{channel}"')
    for send in ("select pgmq.send('jobs', '1')", "select pgmq.send_batch('jobs', array['1']::jsonb[])"):
        waiter.rows("select spanmq.poll(%s)", key)
        race.main.rows(
            "select setval('spanmq_core.woken_' || (queue_id & 15), 0) from spanmq_core.queue where name = 'lake'"
        )
        race.main.rows(send)
        heard = next(waiter.connection.notifies(timeout=WAIT_SECONDS, stop_after=1), None)
        assert heard is not None, send
        assert heard.channel == channel


def test_policy_orders_a_subscription_alone(race: Race) -> None:
    subscribe(race)
    race.main.rows("""select spanmq.set_policy('lake', '{"ordered": true}')""")
    race.main.rows("""
        select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[4]),
                               array_fill('{"x-pgmq-group": "g"}'::jsonb, array[4]))
    """)
    assert len(race.main.rows("select * from spanmq.receive('jobs', 2)")) == 2
    assert len(race.main.rows("select * from spanmq.receive('jobs', 2)")) == 2
    assert len(race.main.rows("select * from spanmq.receive('lake', 2)")) == 2
    assert len(race.main.rows("select * from spanmq.receive('lake', 2)")) == 0


def test_message_is_published_once_in_a_transaction(race: Race) -> None:
    # Published and settled in the queue it may be published again; but not while the subscription has it.
    subscribe(race)
    race.main.begin()
    begin = "select first_id, last_id, log_table, enqueued_at from spanmq.copy_begin('jobs', 2)"
    first, last, log, at = race.main.rows(begin)[0]
    copy_rows(race, log, first, last, at)
    publish = f"select spanmq.copy_publish('jobs', array[{first}::bigint], array[{last}::bigint])"
    race.main.rows(publish)
    race.main.rows("select pgmq.purge_queue('jobs')")
    assert "published already" in refused(race, publish, "MQ002")
    race.main.rollback()
