"""A role that has table privileges, as PGMQ's programs grant them, and not the verb: the error says what to call."""

import psycopg
import pytest
from tests.sql.queue import Connection, column

ROLE = "spanmq_test_table_grantee"
FOLLOW = "select spanmq.follow_table_grants()"
CALLS = {
    "send": "select pgmq.send('jobs', '1')",
    "send_batch": "select pgmq.send_batch('jobs', array['1']::jsonb[])",
    "read": "select pgmq.read('jobs', 0, 1)",
    "pop": "select pgmq.pop('jobs')",
    "set_vt": "select pgmq.set_vt('jobs', 1, 0)",
    "delete": "select pgmq.delete('jobs', 1)",
    "archive": "select pgmq.archive('jobs', 1)",
    "metrics": "select pgmq.metrics('jobs')",
    "purge_queue": "select pgmq.purge_queue('jobs')",
    "insert": "insert into pgmq.q_jobs (message) values ('1')",
    "update": "update pgmq.q_jobs set vt = now()",
    "delete from": "delete from pgmq.q_jobs",
    "drop_queue": "select pgmq.drop_queue('jobs')",
}


@pytest.fixture
def granted(jobs: Connection) -> Connection:
    """A queue `jobs` and a role; what is granted on tables is not followed."""
    jobs.execute(f"create role {ROLE}; select pgmq.send('jobs', '1')".encode())
    return jobs


def refusal(connection: Connection, statement: str) -> psycopg.errors.Diagnostic:
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        connection.execute(f"set local role {ROLE}; {statement}".encode())
    return raised.value.diag


@pytest.mark.parametrize("statement", CALLS.values(), ids=list(CALLS))
def test_error_names_the_function_that_makes_verbs_of_all_privileges(
    granted: Connection, statement: str
) -> None:
    granted.execute(f"grant all on all tables in schema pgmq to {ROLE}".encode())
    refused = refusal(granted, statement)
    assert (refused.sqlstate, refused.message_primary) == ("42501", "permission denied for queue jobs")
    assert FOLLOW in (refused.message_hint or "")
    granted.execute(f"{FOLLOW}".encode())
    granted.execute(f"set local role {ROLE}".encode())
    granted.execute(statement.encode())


@pytest.mark.parametrize(
    ("privileges", "names"),
    [
        ("insert", {"send", "send_batch", "insert"}),
        ("select", {"metrics"}),
        (
            "select, update, delete",
            {"read", "pop", "set_vt", "delete", "archive", "metrics", "update", "delete from"},
        ),
    ],
)
def test_error_names_it_for_the_calls_of_each_privilege(
    granted: Connection, privileges: str, names: set[str]
) -> None:
    granted.execute(f"grant {privileges} on all tables in schema pgmq to {ROLE}".encode())
    hints = {name: refusal(granted, each) for name, each in CALLS.items()}
    assert {each.sqlstate for each in hints.values()} == {"42501"}
    assert {name for name, each in hints.items() if FOLLOW in (each.message_hint or "")} == names


def test_queue_does_not_exist_for_a_role_without_any_privilege(granted: Connection) -> None:
    for name in ("send", "read", "metrics"):
        refused = refusal(granted, CALLS[name])
        assert refused.sqlstate == "42P01"
        assert FOLLOW not in (refused.message_hint or "")
    with granted.transaction():
        granted.execute(f"set local role {ROLE}".encode())
        assert column(granted, CALLS["drop_queue"]) == [False]
