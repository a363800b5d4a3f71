"""The owner of the schemas, a role without any attribute or membership."""

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.sql.queue import Connection, one, rows

from spanmq import schema


def truncated(owner: Connection, calls: int = 20) -> bool:
    """Whether maintain() truncates a segment within some calls; every one notes what the next may rely on."""
    return any(
        row[0] == "truncated segment"
        for _ in range(calls)
        for row in rows(owner, "select action from spanmq.maintain()")
    )


@pytest.mark.parametrize(
    ("begin", "seen"),
    [("begin isolation level repeatable read", 17000), ("begin", 0)],
    ids=["a snapshot", "an open transaction"],
)
def test_segments_go_when_others_have_ended_of_whom_the_owner_may_see_nothing(
    session: Connection, empty_database: str, role: str, begin: str, seen: int
) -> None:
    session.execute(f"grant create on database {session.info.dbname} to {role}".encode())
    with psycopg.connect(empty_database, user=role, autocommit=True) as owner:
        schema.install(owner)
        owner.execute("select pgmq.create('jobs')")
        owner.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[17000]))")
        session.execute(begin.encode())
        session.execute("select 1")
        owner.execute("select pgmq.delete('jobs', array(select msg_id from pgmq.q_jobs))")
        assert not truncated(owner)
        # This locks the tables too, so it comes last.
        assert one(session, "select count(*) from pgmq.q_jobs") == seen
        session.execute("commit")
        # What is open in other databases holds numbers back.
        wait_until(lambda: truncated(owner))


def test_ordinary_owner_verifies_maintains_and_asks_the_doctor(
    session: Connection, empty_database: str, role: str
) -> None:
    session.execute(f"grant create on database {session.info.dbname} to {role}".encode())
    with psycopg.connect(empty_database, user=role, autocommit=True) as owner:
        schema.install(owner)
        owner.execute("select pgmq.create('jobs')")
        assert schema.verify(owner) == []
        owner.execute("select from spanmq.maintain()")
        levels = dict(rows(owner, "select check_name, level from spanmq.doctor()"))
        assert {levels[each] for each in ("maintenance", "rights", "segments", "snapshots")} == {"ok"}
