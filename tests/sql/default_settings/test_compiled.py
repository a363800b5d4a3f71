"""With PostgreSQL's default settings no call is compiled, which would take a second instead of a millisecond.

Before PostgreSQL 18 a function that pins `enable_seqscan = off` adds 1e10 to the cost of its plans, which is
above `jit_above_cost` whatever they do.
"""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.queue import Connection

SETUP = (
    "select pgmq.create('jobs'), pgmq.create('groups'), pgmq.create('limits')",
    "select spanmq.set_policy('limits', '{\"max_attempts\": 2, \"max_in_flight\": 100}')",
)
# A cycle of a message in each way, twice: a plan is kept from its second call on.
CYCLE = (
    "select pgmq.send('jobs', '1')",
    "select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[20]))",
    "select pgmq.send_batch('limits', array_fill('1'::jsonb, array[20]))",
    "select pgmq.send('groups', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)",
    "select pgmq.send('groups', '1', '{\"x-pgmq-group\": \"b\"}'::jsonb)",
    "select * from spanmq.send_messages('jobs', array['1'::jsonb], priority => 3)",
    "select pgmq.delete('jobs', msg_id) from pgmq.read('jobs', 30, 5)",
    "select pgmq.archive('jobs', msg_id) from pgmq.read('jobs', 30, 5)",
    "select pgmq.set_vt('jobs', msg_id, 0) from pgmq.read('jobs', 30, 1)",
    "select * from pgmq.pop('jobs', 2)",
    "select * from pgmq.read_grouped('groups', 30, 2)",
    "select * from pgmq.read_grouped_rr('groups', 30, 2)",
    "select spanmq.ack('jobs', lease_id, array_agg(msg_id)) from spanmq.receive('jobs', 3) group by lease_id",
    "select spanmq.nack('limits', lease_id, array[msg_id]) from spanmq.receive('limits', 3)",
    "select spanmq.reject('limits', lease_id, array[msg_id]) from spanmq.receive('limits', 2)",
    "select spanmq.ack('groups', lease_id, array_agg(msg_id)) from spanmq.receive('groups', 2) group by lease_id",
    "select spanmq.redrive('limits')",
    "select * from spanmq.peek('jobs', 10)",
    "select * from pgmq.metrics('jobs')",
    "select * from pgmq.metrics_all()",
    "select * from spanmq.health()",
    "select * from spanmq.doctor()",
    "select * from spanmq.maintain()",
)


@pytest.fixture
def connection(default_server: str) -> Iterator[Connection]:
    """Return a connection, rolled back after the test; it shadows the one to the suite's own server."""
    with psycopg.connect(default_server) as opened, opened.transaction(force_rollback=True):
        yield opened


def test_server_would_compile_a_costly_plan(connection: Connection) -> None:
    row = connection.execute(
        "select pg_jit_available(), current_setting('jit'), current_setting('jit_above_cost')::float"
    ).fetchone()
    assert row == (True, "on", 100000)


def test_no_call_is_compiled(connection: Connection) -> None:
    for statement in SETUP:
        connection.execute(statement)
    connection.execute("set local pg_stat_statements.track = 'all'")
    connection.execute("select pg_stat_statements_reset()")
    for _ in range(2):
        for statement in CYCLE:
            connection.execute(statement)
    row = connection.execute("select count(*) from pg_stat_statements").fetchone()
    assert row is not None
    assert row[0] > len(CYCLE)
    compiled = connection.execute(
        "select query, jit_functions from pg_stat_statements where jit_functions > 0"
    ).fetchall()
    assert compiled == []


def test_function_that_pins_its_plans_is_never_compiled(shared_database: str) -> None:
    with psycopg.connect(shared_database) as opened:
        rows = opened.execute(
            "select p.oid::regprocedure::text, 'jit=off' = any (p.proconfig) from pg_proc p"
            " where p.pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace, 'spanmq_core'::regnamespace)"
            " and p.proconfig::text ~ 'enable_[a-z_]+=off'"
        ).fetchall()
    assert rows
    assert [name for name, is_never_compiled in rows if not is_never_compiled] == []
