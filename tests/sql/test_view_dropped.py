"""A queue whose view was dropped by hand says so, and is whole again after `create`."""

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection

KINDS = ("create", "create_unlogged", "create_partitioned")


@pytest.mark.parametrize("kind", KINDS)
def test_create_makes_a_missing_view(connection: Connection, kind: str) -> None:
    connection.execute(f"select pgmq.{kind}('jobs')".encode())
    connection.execute("select pgmq.send('jobs', '1')")
    connection.execute("drop view pgmq.q_jobs")
    for call in ("send('jobs', '2')", "read('jobs', 30, 1)", "drop_queue('jobs')", "metrics('jobs')"):
        with pytest.raises(psycopg.errors.UndefinedTable, match="create") as raised, connection.transaction():
            connection.execute(f"select {qualified(call)}".encode())
        assert raised.value.diag.message_primary == 'relation "pgmq.q_jobs" does not exist'
    assert connection.execute("select count(*) from pgmq.metrics_all()").fetchone() == (0,)
    connection.execute("select pgmq.create('jobs')")
    assert connection.execute("select msg_id from pgmq.read('jobs', 30, 9)").fetchall() == [(1,)]
    connection.execute("update pgmq.q_jobs set vt = now()")
    connection.execute("delete from pgmq.q_jobs")
    assert connection.execute("select pgmq.drop_queue('jobs')").fetchone() == (True,)


def test_maker_of_queues_gets_no_right_on_another_s_that_it_makes_whole(jobs: Connection) -> None:
    jobs.execute("create role spanmq_test_maker; select spanmq.grant_create('spanmq_test_maker')")
    jobs.execute("drop view pgmq.q_jobs; set local role spanmq_test_maker")
    jobs.execute("select pgmq.create('jobs')")
    with pytest.raises(psycopg.errors.UndefinedTable):
        jobs.execute("select pgmq.send('jobs', '1')")
