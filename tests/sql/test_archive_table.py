"""The archive is a table that its owner may drop, rename and make again. No other role runs anything by it."""

import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection, one, sqlstate_of

MAKER = "spanmq_test_maker"
TABLE = (
    "create table pgmq.a_jobs (msg_id bigint primary key, read_ct int, enqueued_at timestamptz,"
    " last_read_at timestamptz, archived_at timestamptz default now(), vt timestamptz, message jsonb,"
    " headers jsonb)"
)
TRIGGER = "create trigger mine before insert on pgmq.a_jobs execute function pgmq.notify_queue_listeners()"


@pytest.fixture
def maker(connection: Connection) -> Connection:
    """A session of a role that may make queues and tables in the schema, with a queue `jobs`."""
    connection.execute(f"create role {MAKER}; grant create on schema pgmq to {MAKER}".encode())
    connection.execute("select spanmq.grant_create(%s)", [MAKER])
    connection.execute(f"set local role {MAKER}".encode())
    return connection


def test_manager_of_a_queue_only_reads_its_archive(maker: Connection) -> None:
    maker.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1'), pgmq.archive('jobs', 1)")
    assert one(maker, "select count(*) from pgmq.a_jobs") == 1
    maker.execute("create table pgmq.theirs (id bigint)")
    for statement in (
        TRIGGER,
        "create rule mine as on insert to pgmq.a_jobs do also delete from pgmq.theirs",
        "alter table pgmq.theirs add foreign key (id) references pgmq.a_jobs",
        "create table pgmq.heir () inherits (pgmq.a_jobs)",
        "create index on pgmq.a_jobs (read_ct)",
        "alter table pgmq.a_jobs rename to a_kept",
        "update pgmq.a_jobs set message = '2'",
        "delete from pgmq.a_jobs",
        "select * from pgmq.a_jobs for key share",
        "lock table pgmq.a_jobs in row share mode",
        "create publication mine for table pgmq.a_jobs",
    ):
        assert sqlstate_of(maker, statement) == "42501", statement


def test_table_of_another_owner_becomes_no_archive(maker: Connection) -> None:
    # Its triggers would run with the rights of the schema's owner.
    maker.execute(TABLE.encode())
    assert sqlstate_of(maker, "select pgmq.create('jobs')") == "42501"
    maker.execute("reset role")
    assert sqlstate_of(maker, "select pgmq.create('jobs')") == "42501"
    maker.execute("alter table pgmq.a_jobs owner to current_user; select pgmq.create('jobs')")


def test_table_of_another_owner_takes_no_archive_s_place(maker: Connection) -> None:
    maker.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1')")
    maker.execute("reset role; alter table pgmq.a_jobs rename to a_kept")
    maker.execute(f"set local role {MAKER}".encode())
    maker.execute(TABLE.encode())
    assert sqlstate_of(maker, "select pgmq.archive('jobs', 1)") == "42501"
    maker.execute("reset role")
    assert one(maker, "select count(*) from pgmq.q_jobs") == 1


def test_without_an_archive_all_else_goes_on(jobs: Connection) -> None:
    jobs.execute("select pgmq.send('jobs', '1'), pgmq.archive('jobs', 1)")
    jobs.execute("select pgmq.convert_archive_partitioned('jobs', retention_interval => '1')")
    jobs.execute("drop table pgmq.a_jobs")
    assert one(jobs, "select pgmq.send('jobs', '2')") == 2
    assert sqlstate_of(jobs, "select pgmq.archive('jobs', 2)") == "42P01"
    assert sqlstate_of(jobs, "select spanmq.peek_archive('jobs')") == "42P01"
    for call in ("maintain()", "health()", "storage('jobs')", "list_queues()", "state('jobs', 1)"):
        jobs.execute(f"select {qualified(call)}".encode())
    jobs.execute("select spanmq.grant_queue('pg_monitor', 'jobs', 'manage')")
    jobs.execute("select spanmq.revoke_queue('pg_monitor', 'jobs', 'manage')")
    assert one(jobs, "select pgmq.drop_queue('jobs')") is True


def test_renamed_archive_is_not_pruned(jobs: Connection) -> None:
    jobs.execute("select pgmq.send_batch('jobs', array['1', '2', '3']::jsonb[])")
    jobs.execute("select pgmq.archive('jobs', 1)")
    jobs.execute("select pgmq.convert_archive_partitioned('jobs', retention_interval => '1')")
    jobs.execute("alter table pgmq.a_jobs rename to a_kept")
    jobs.execute("select spanmq.maintain()")
    assert one(jobs, "select count(*) from pgmq.a_kept") == 1
    jobs.execute("create table pgmq.a_jobs (like pgmq.a_kept including all)")
    jobs.execute("select pgmq.archive('jobs', 3)")
    assert one(jobs, "select array_agg(msg_id) from spanmq.peek_archive('jobs')") == [3]
    assert one(jobs, "select spanmq.state('jobs', 3)") == "completed"


def test_queue_is_made_by_the_role_that_calls(maker: Connection) -> None:
    maker.execute("select pgmq.create('jobs')")
    maker.execute("reset role; alter table pgmq.a_jobs rename to a_kept")
    maker.execute(f"set local role {MAKER}".encode())
    for call in ("'kept', false, false", "'kept', '1000', '1000', 4"):
        function = "create_queue" if "false" in call else "create_partitioned_queue"
        assert sqlstate_of(maker, f"select spanmq_call.{function}({call}, gen_random_uuid())") == "42501"
        proved = f"select spanmq_call.{function}({call}, spanmq_call.prove_caller())"
        assert sqlstate_of(maker, proved) == "42501"
