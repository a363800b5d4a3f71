"""Objects that roles without rights make of ours, such as temporary views, keep no queue from being dropped."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.patience import wait_until
from tests.sql.queue import Connection, column, one, rows, sqlstate_of
from tests.sql.rights import own_role

from spanmq import schema

# What a role that may only connect can make: no right on `jobs` is needed, but that the schema is open.
OBJECTS = {
    "view": "create temp view theirs as select * from pgmq.q_jobs",
    "archive": "create temp view theirs as select * from pgmq.a_jobs",
    "both": "create temp view theirs as select msg_id from pgmq.q_jobs union select msg_id from pgmq.a_jobs",
    "sequence": "create temp view theirs as select * from pgmq.q_jobs_msg_id_seq",
    "default": "create temp table theirs (id bigint default nextval('pgmq.q_jobs_msg_id_seq'), n int)",
    "row type": "create temp table theirs (message pgmq.a_jobs, n int)",
    "argument": "create function pg_temp.theirs(pgmq.q_jobs) returns int language sql return 1",
    "wrapper": "create temp view theirs as select * from spanmq_call.delete_{number}(1::bigint)",
}
SET_ASIDE = (
    "select count(*) from pg_class"
    " where relnamespace = 'spanmq_core'::regnamespace and relname ~ '^dropped_[0-9]+$' and relkind <> 'i'"
)


@pytest.fixture
def stranger(database: str) -> Iterator[Connection]:
    """A session of a role that may only connect and make temporary objects."""
    with (
        psycopg.connect(database, autocommit=True) as owner,
        own_role(owner) as role,
        own_role(owner, "_2") as manager,
        psycopg.connect(database, autocommit=True) as session,
    ):
        owner.execute(f"grant temporary on database {owner.info.dbname} to {role}".encode())
        owner.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1'), pgmq.archive('jobs', 1)")
        owner.execute(f"select spanmq.grant_queue('{manager}', 'jobs', 'manage')".encode())
        session.execute(f"set role {role}".encode())
        yield session


@pytest.fixture
def owner(database: str, stranger: Connection) -> Iterator[Connection]:
    """A session of the owner of the schemas; `stranger` is there before."""
    with psycopg.connect(database, autocommit=True) as session:
        yield session


def maintained(owner: Connection, question: str) -> bool:
    """Run a step of maintenance, and return the answer to a question."""
    owner.execute("select spanmq.maintain()")
    return bool(one(owner, question))


@pytest.mark.parametrize("name", OBJECTS)
def test_object_of_a_role_without_rights_keeps_no_queue(
    owner: Connection, stranger: Connection, name: str
) -> None:
    number = one(owner, "select queue_id from spanmq_core.queue where name = 'jobs'")
    stranger.execute(OBJECTS[name].format(number=number).encode())
    views = one(owner, "select finding from spanmq.doctor() where check_name = 'views'")
    assert ("theirs of " in views) is ("create temp view" in OBJECTS[name] and name != "wrapper")
    details: list[str] = []
    owner.add_notice_handler(lambda notice: details.append(notice.message_detail or ""))
    assert one(owner, "select pgmq.drop_queue('jobs')")
    assert column(owner, "select queue_name from pgmq.list_queues()") == []
    # The name is free.
    owner.execute("select pgmq.create('jobs'), pgmq.send('jobs', '2'), pgmq.archive('jobs', 1)")
    assert rows(owner, "select msg_id from pgmq.a_jobs") == [(1,)]
    wait_until(lambda: maintained(owner, "select not exists (select from spanmq_core.dropped_queue)"))
    is_named = name != "wrapper"
    assert any("theirs" in text for text in details) is is_named
    assert schema.verify(owner) == []
    if "view" in OBJECTS[name]:
        assert sqlstate_of(stranger, "select * from pg_temp.theirs") == "42501"
    assert (one(owner, SET_ASIDE) > 0) is is_named
    # And goes when nothing depends on it any more.
    stranger.execute("discard temp")
    wait_until(lambda: maintained(owner, SET_ASIDE.replace("count(*)", "count(*) = 0")))
    assert one(owner, "select pgmq.drop_queue('jobs')")


def wait_for_lanes(owner: Connection) -> list[str]:
    """Run maintenance until lanes 1 and 2 are free, or another queue's; return its warnings."""
    warnings: list[str] = []
    owner.add_notice_handler(lambda notice: warnings.append(notice.message_primary or ""))
    views = "select array(select view_name::text from information_schema.view_table_usage where view_name ~ '^lane')"

    def are_free() -> bool:
        owner.execute("select spanmq.maintain()")
        freed = "select count(*) from spanmq_core.lane l join spanmq_core.queue q on q.lane = l.lane"
        return bool(one(owner, f"{freed} having count(*) = (select count(*) from spanmq_core.lane)"))

    wait_until(are_free)
    assert len(one(owner, views)) == 1
    return [text for text in warnings if "maintain()" in text]


def test_view_of_a_lane_keeps_no_maintenance_and_no_queue(owner: Connection, stranger: Connection) -> None:
    owner.execute("grant usage on schema spanmq_core to public")
    owner.execute("select pgmq.create('others')")
    for queue in ("jobs", "others"):
        batch = "select count(*) from pgmq.send_batch(%s, array_fill('1'::jsonb, array[1000]))"
        owner.execute(batch, [queue])
    owner.execute("select spanmq.maintain()")
    lanes = "select array_agg(lane order by lane) from spanmq_core.{}"
    assert one(owner, lanes.format("queue")) == [1, 2]
    stranger.execute("create temp view theirs as select * from spanmq_core.lane_1")
    stranger.execute("create temp view more as select * from spanmq_core.lane_2")
    assert one(owner, "select pgmq.drop_queue('jobs')")
    # As when the queue comes to its next segment.
    owner.execute("update spanmq_core.queue set lane = null")
    assert wait_for_lanes(owner) == []
    assert len(one(owner, lanes.format("queue"))) == 1
    assert one(owner, "select pgmq.send('others', '1')") == 1001
    assert one(owner, "select pgmq.drop_queue('others')")
    assert schema.verify(owner) == []


def test_view_of_a_segment_keeps_no_log(owner: Connection, stranger: Connection) -> None:
    owner.execute("grant usage on schema spanmq_core to public")
    [log] = column(owner, "select log_name from spanmq_core.segment where lo = 0")
    stranger.execute(f"create temp view theirs as select * from spanmq_core.{log}".encode())
    stranger.execute(f"create temp view more as select * from spanmq_core.{log.rpartition('_')[0]}".encode())
    owner.execute("select setval('pgmq.q_jobs_msg_id_seq', 100000), pgmq.send('jobs', '1')")
    # Transactions in other databases of the server may keep it for a while.
    wait_until(lambda: "dropped segment" in column(owner, "select action from spanmq.maintain()"))
    assert one(owner, "select msg_id from pgmq.read('jobs', 0, 1)") == 100001
    assert one(owner, "select pgmq.drop_queue('jobs')")
    assert schema.verify(owner) == []
