"""Statements on the view of a queue that could not do what they say are errors, and never acknowledged."""

import pytest
from tests.sql.queue import Connection, column, one, sqlstate_of

from spanmq import schema

REPLICA = "set session_replication_role = replica"
IDS = "select msg_id from pgmq.q_jobs order by 1"
# In replica mode, PostgreSQL calls no trigger of a view.
STATEMENTS = [
    "insert into pgmq.q_jobs (message) values ('1')",
    "insert into pgmq.q_jobs (vt, message) values (now(), '1') returning msg_id",
    "insert into pgmq.q_jobs (msg_id, read_ct, enqueued_at, vt, message) values (9, 0, now(), now(), '1')",
    "copy pgmq.q_jobs (vt, message) from program 'echo \"2020-01-01 00:00:00+00,3\"' (format csv)",
    "update pgmq.q_jobs set vt = now() + interval '1 hour'",
    "update pgmq.q_jobs set vt = now() where msg_id = 1",
    "delete from pgmq.q_jobs",
    "delete from pgmq.q_jobs where msg_id = 1 returning msg_id",
    "with gone as (delete from pgmq.q_jobs returning *) select count(*) from gone",
    "select count(*) from pgmq.q_jobs",
]


@pytest.fixture
def two_jobs(jobs: Connection) -> Connection:
    jobs.execute("select pgmq.send_batch('jobs', array['1', '2']::jsonb[])")
    return jobs


@pytest.mark.parametrize("statement", STATEMENTS)
def test_statement_in_replica_mode_is_refused(two_jobs: Connection, statement: str) -> None:
    before = column(two_jobs, IDS)
    two_jobs.execute(REPLICA)
    assert sqlstate_of(two_jobs, statement) == "MQ004"
    two_jobs.execute("reset session_replication_role")
    assert column(two_jobs, IDS) == before


def test_functions_work_in_replica_mode(two_jobs: Connection) -> None:
    two_jobs.execute(REPLICA)
    sent = one(two_jobs, "select pgmq.send('jobs', '3')")
    assert sent in column(two_jobs, "select msg_id from pgmq.read('jobs', 30, 10)")
    assert one(two_jobs, "select pgmq.delete('jobs', %s)", sent) is True
    two_jobs.execute("select pgmq.create('others')")
    two_jobs.execute("reset session_replication_role")
    two_jobs.execute("insert into pgmq.q_others (message) values ('1')")


@pytest.mark.parametrize("strength", ["update", "no key update", "share", "key share", "update skip locked"])
@pytest.mark.parametrize(
    "rows", ["pgmq.q_jobs", "(select * from pgmq.q_jobs) q", "pgmq.q_jobs join pgmq.meta on true"]
)
def test_rows_of_a_queue_cannot_be_locked(two_jobs: Connection, strength: str, rows: str) -> None:
    assert sqlstate_of(two_jobs, f"select msg_id from {rows} for {strength}") == "0A000"


def test_rows_of_other_tables_are_locked_beside_a_queue(two_jobs: Connection) -> None:
    two_jobs.execute("create table public.note (msg_id bigint); insert into public.note values (1), (2)")
    locked = "select msg_id from public.note n join pgmq.q_jobs q using (msg_id) for update of n"
    assert len(column(two_jobs, locked)) == len(column(two_jobs, IDS))


@pytest.mark.parametrize("statement", [IDS, "select count(*), max(vt) from pgmq.q_jobs where msg_id = 1"])
def test_refusal_of_row_locks_costs_no_join(two_jobs: Connection, statement: str) -> None:
    plan = "\n".join(column(two_jobs, f"explain {statement}"))
    assert "Left Join" not in plan
    assert "queue_pkey" not in plan


def test_upgrade_renews_the_views_of_an_older_release(two_jobs: Connection) -> None:
    before = column(two_jobs, IDS)
    number = one(two_jobs, "select queue_id from spanmq_core.queue where name = 'jobs'")
    two_jobs.execute(
        "create or replace view pgmq.q_jobs as select msg_id, 0 as read_ct, enqueued_at,"
        " null::timestamptz as last_read_at, enqueued_at as vt, message, headers"
        f" from spanmq_core.log_{number}".encode()
    )
    columns = column(two_jobs, "select attname from pg_attribute where attrelid = 'pgmq.q_jobs'::regclass")
    two_jobs.execute(
        f"alter view pgmq.q_jobs {', '.join(f'alter {name} drop default' for name in columns)}".encode()
    )
    assert column(two_jobs, f"{IDS} for update") == before
    schema.upgrade(two_jobs)
    assert sqlstate_of(two_jobs, f"{IDS} for update") == "0A000"
    assert column(two_jobs, IDS) == before
