"""What is done to one queue, and what is left open, stops no other queue."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.queue import Connection, column, one, rows
from tests.sql.rights import RELATIONS, calls, fill, own_role

# Transactions that stay open: others go on.


@pytest.fixture
def sessions(database: str) -> Iterator[tuple[Connection, Connection]]:
    """A session with queues `jobs` and `others`, and another one, whose lock_timeout only what waits reaches."""
    with (
        psycopg.connect(database, autocommit=True) as first,
        psycopg.connect(database, autocommit=True) as second,
    ):
        second.execute("set lock_timeout = '10s'")
        fill(first)
        yield first, second


def go_on(session: Connection, *, is_maintained: bool = True) -> None:
    """Do with `others` all that a sender, a receiver and maintenance do."""
    sent = one(session, "select pgmq.send('others', '1', '{\"x-pgmq-group\": \"g\"}'::jsonb)")
    session.execute("select pgmq.send_batch('others', array['2', '3']::jsonb[])")
    receive = "select min(lease_id), array_agg(msg_id) from spanmq.receive('others', 999)"
    [(lease, ids)] = rows(session, receive)
    assert sent in ids
    session.execute("select spanmq.nack('others', %s, array[%s]::bigint[])", [lease, sent])
    session.execute("select spanmq.ack('others', %s, %s)", [lease, ids])
    session.execute("select pgmq.archive('others', %s::bigint)", [sent])
    session.execute("select count(*) from pgmq.q_others")
    session.execute("select spanmq.health(array['others']), spanmq.count_messages(array['others'])")
    sample = (
        "spanmq_core.sample where queue_id = (select queue_id from spanmq_core.queue where name = 'others')"
    )
    session.execute(f"delete from {sample}".encode())
    session.execute("select spanmq.maintain()")
    assert one(session, f"select count(*) from {sample}") == int(is_maintained)


def test_transaction_that_stays_open_after_any_call_stops_no_other_queue(
    sessions: tuple[Connection, Connection],
) -> None:
    first, second = sessions
    stopped = {}
    for name, call in calls(first, "jobs"):
        with first.transaction(force_rollback=True):
            try:
                with first.transaction():
                    first.execute(call.encode())
            except psycopg.Error:
                continue
            try:
                # One maintenance at a time: a role that may do it can keep all others from it.
                go_on(second, is_maintained=name != "maintain")
            except (psycopg.Error, AssertionError) as error:
                stopped[call] = str(error)
    assert stopped == {}


def test_locks_of_a_role_without_rights_stop_no_queue(
    sessions: tuple[Connection, Connection], database: str
) -> None:
    """nextval() locks whatever has the number that it gets, before it looks at rights."""
    first, second = sessions
    numbers = [number for _, _, number in rows(first, RELATIONS)]
    with own_role(first) as role, psycopg.connect(database) as theirs:
        theirs.execute(f"set role {role}".encode())
        for number in numbers:
            with pytest.raises(psycopg.Error), theirs.transaction():
                theirs.execute("select nextval(%s::oid::regclass)", [number])
        theirs.execute("select pg_advisory_lock(i) from generate_series(0, 99) i")
        theirs.execute('notify "spanmq.access"; notify "spanmq.q_others"; listen "spanmq.q_others"')
        held = "select count(*) from pg_locks where pid = %s and mode = 'RowExclusiveLock' and granted"
        assert one(second, held, theirs.info.backend_pid) >= len(numbers)
        go_on(second)
        go_on(second)
        second.execute("select pgmq.create('made'), pgmq.send('made', '1'), pgmq.read('made', 0, 1)")
        theirs.rollback()


BREAKER = '{"jobs": {"breaker": {"open_for": 60, "opening": 1}}, "others": {"breaker": {"open_for": 60, "opening": 1}}}'
REPORT = "select * from spanmq.report_worker(%s, 'w', 10, 1, %s::jsonb)"


def test_no_command_waits_for_a_report_that_stays_open(sessions: tuple[Connection, Connection]) -> None:
    """A role that may receive from one queue reports under whatever name, and leaves its transaction open."""
    first, second = sessions
    rows(first, REPORT, ["jobs", "others"], BREAKER)
    with first.transaction():
        rows(first, REPORT, ["jobs"], BREAKER)
        assert one(second, "select spanmq.stop_worker('w')") == 2
        assert [one(second, f"select spanmq.close_breaker('{queue}')") for queue in ("jobs", "others")] == [
            0,
            1,
        ]
        assert one(second, "select spanmq.ask_stacks('jobs', 'w')")
        go_on(second)
    assert (None, "stop") in rows(first, REPORT, ["jobs"], BREAKER)
    assert (None, "stop") in rows(first, REPORT, ["others"], BREAKER)


def test_only_a_session_that_may_export_holds_an_export(
    sessions: tuple[Connection, Connection], database: str
) -> None:
    first, second = sessions
    hold = "select spanmq.hold_export('jobs', 'lake')"
    held = (
        "select classid::bigint << 32 | objid::bigint from pg_locks where locktype = 'advisory' and pid = %s"
    )
    assert one(first, hold)
    assert one(first, hold)
    numbers = column(second, held, first.info.backend_pid)
    with psycopg.connect(database, autocommit=True) as theirs:
        # Whatever the lock was, another session has it from now on.
        assert not one(second, hold)
        first.execute("select pg_advisory_unlock_all()")
        for number in numbers:
            theirs.execute("select pg_advisory_lock(%s)", [number])
        assert one(second, hold)
        assert not one(first, hold)
        assert one(first, "select spanmq.hold_export('others', 'lake')")


# What an owner does to the tables of one queue.

TRIGGER = """
create function pgmq.fires() returns trigger language plpgsql as $$ begin {}; end $$;
create trigger fires before delete or insert on pgmq.a_jobs for each row execute function pgmq.fires()
"""


@pytest.mark.parametrize(
    "damage",
    [
        "create table pgmq.held (id bigint references pgmq.a_jobs); insert into pgmq.held values (1)",
        TRIGGER.format("raise exception 'no'"),
        TRIGGER.format("return null"),
        "drop table pgmq.a_jobs",
        "alter table pgmq.a_jobs rename to a_kept",
        "alter table pgmq.a_jobs drop column archived_at",
        "alter table pgmq.a_jobs add column more int not null default 1, add check (msg_id < 0) not valid",
        "drop view pgmq.q_jobs",
    ],
)
def test_owner_s_change_of_one_queue_s_tables_stops_no_other(
    sessions: tuple[Connection, Connection], damage: str
) -> None:
    first, second = sessions
    for queue in ("jobs", "others"):
        first.execute("select pgmq.archive(%s, 1)", [queue])
        first.execute("select pgmq.convert_archive_partitioned(%s, retention_interval => '1')", [queue])
    first.execute(damage.encode())
    go_on(second)
    # Its archive is kept as its settings say.
    for _ in range(5):
        second.execute("select spanmq.maintain(100)")
    assert one(second, "select count(*) from pgmq.a_others where msg_id = 1") == 0
