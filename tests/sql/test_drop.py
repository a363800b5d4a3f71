"""A queue that is dropped leaves nothing: no table, view or sequence, no row of what was kept for it."""

import psycopg
import pytest
from tests.sql.queue import column
from tests.sql.race.sessions import Race
from tests.sql.segment import maintain

KINDS = ("create", "create_unlogged", "create_partitioned")
# Whatever makes something to be kept for a queue.
LIFE = (
    'select spanmq.set_policy(\'orders\', \'{"max_backlog": 1000, "rate_limit": 1000, "max_attempts": 3}\')',
    "select pgmq.enable_notify_insert('orders')",
    "select pgmq.bind_topic('a.*', 'orders')",
    "select spanmq.schedule('daily', 'orders', '0 0 * * *', '1')",
    "select spanmq.set_category_rule('mine', 'BUSINESS', error => 'boom', queue => 'orders')",
    "select spanmq.set_category_policy('orders', 'DEPENDENCY', '{\"max_attempts\": 2}')",
    "select spanmq.await_messages('{orders}', gen_random_uuid())",
    (
        "select spanmq.send_messages('orders', array['1']::jsonb[], priority => 7, dedup_ids => array['a'],"
        " expires_in => 1e6)"
    ),
    (
        "select pgmq.send_batch('orders', array_fill('1'::jsonb, array[40]),"
        ' array_fill(\'{"x-pgmq-group": "a"}\'::jsonb, array[40]))'
    ),
    "select spanmq.nack('orders', lease_id, array[msg_id], 'timeout') from spanmq.receive('orders', 3)",
    "select spanmq.reject('orders', lease_id, array[msg_id], 'boom') from spanmq.receive('orders', 3)",
    "select pgmq.delete('orders', min(msg_id)) from spanmq.receive('orders', 9)",
    "select pgmq.archive('orders', max(msg_id)) from pgmq.q_orders",
    "select pgmq.read_grouped('orders', 30, 3)",
    "select spanmq.receiver_open('orders', label => 'lake')",
    "select spanmq.note_export('orders', 'lake', '{[1,2)}')",
    "select spanmq.bulk_reserve('orders', 'w', 0, 5)",
    "select spanmq.begin_pipeline_run('export', 'orders')",
    "select spanmq.store_result('orders', 1, '1')",
    (
        "select spanmq.report_worker('{orders}', 'a', 1, 1, jsonb_build_object('orders', jsonb_build_object('times',"
        " jsonb_build_array(jsonb_build_object('kind', 'a', 'failed', false, 'bucket', 1, 'n', 1)))))"
    ),
    (
        "select spanmq.report_worker('{orders}', 'a', 1, 1,"
        """ '{"orders": {"breaker": {"open_for": 60, "opening": 1}}}')"""
    ),
    "select spanmq.add_to_batch('orders', spanmq.create_batch('orders', '1'), array[40]) from (select) as together",
    "select spanmq.set_sqs_queue('orders', '{}')",
    "select * from spanmq.maintain()",
    "update spanmq_core.sample set sampled_at = sampled_at - interval '61 s'",
    "select * from spanmq.maintain(100)",
)
# Tables whose rows are of a queue, and those of them in which this one has any.
OF_QUEUES = """
select a.attrelid::regclass::text, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid
where c.relnamespace = 'spanmq_core'::regnamespace and c.relkind = 'r' and a.attname in ('queue_id', 'log_id')
    and a.atttypid = 'int'::regtype
"""
# Tables that have rows of every kind of queue after that.
FILLED = (
    "policy schedule category_rule category_policy deduplication expiry failure dead_letter dead_letter_count"
    " statistics sample pipeline_run result worker task_time breaker receiver state later group_lock"
)
RELATIONS = (
    "select oid::regclass::text from pg_class"
    " where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace)"
)


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_queue_leaves_nothing(database: str, kind: str) -> None:
    with psycopg.connect(database) as connection:
        before = set(column(connection, RELATIONS))
    with Race(database, "orders", kind) as race:
        for statement in LIFE:
            race.main.rows(statement)
        check_drop(race, before)


def check_drop(race: Race, before: set[str]) -> None:
    session = race.main
    queue_id = race.queue_id

    def kept() -> dict[str, int]:
        tables = session.rows(OF_QUEUES)
        counts = {
            table: session.value(f"select count(*) from {table} where {name} = {queue_id}")
            for table, name in tables
        }
        return {table: n for table, n in counts.items() if n}

    assert {f"spanmq_core.{table}" for table in FILLED.split()} <= kept().keys()
    assert len(set(session.column(RELATIONS)) - before) > 8
    assert session.column("select pgmq.drop_queue('orders')") == [True]
    # What bears only its id, and may be known to calls under way.
    assert kept().keys() == {"spanmq_core.dropped_queue", "spanmq_core.bound"}
    left = set(session.column(RELATIONS)) - before
    assert left == {f"spanmq_core.{kind}_{queue_id}" for kind in ["ids", "notified", "rate", "room"]}
    assert session.column("select count(*) from pgmq.list_topic_bindings()") == [0]
    assert session.column("select count(*) from spanmq.list_schedules()") == [0]
    maintain(race)
    assert kept() == {}
    assert set(session.column(RELATIONS)) - before == set()
