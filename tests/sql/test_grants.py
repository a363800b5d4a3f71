"""Grants in three words: what each lets a role do, who may give it, and what is not shown to others."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.schemas import qualified

ROLE = "spanmq_test_granted"
OTHER = "spanmq_test_other"
CALLS = {
    "send": ["send('jobs', '1')", "send_batch('jobs', array['1'::jsonb])"],
    "receive": [
        "receive('jobs', 1)",
        "read('jobs', 0, 1)",
        "ack('jobs', 1, array[1::bigint])",
        "delete('jobs', 1)",
        "peek('jobs')",
        "metrics('jobs')",
        "nack('jobs', 1, array[1::bigint])",
    ],
    "manage": [
        "purge_queue('jobs')",
        "set_policy('jobs', '{\"max_attempts\": 3}')",
        "pause('jobs')",
        "peek_archive('jobs')",
        "grant_queue('spanmq_test_other', 'jobs', 'send')",
        "enable_notify_insert('jobs')",
    ],
}


@pytest.fixture
def roles(connection: Connection[Any]) -> Connection[Any]:
    """A queue `jobs` with a message in it, and two roles that have nothing to do with it."""
    connection.execute("select pgmq.create('jobs'), pgmq.send('jobs', '1')")
    for role in (ROLE, OTHER):
        connection.execute(f"create role {role}".encode())
    return connection


def outcome(connection: Connection[Any], call: str, role: str = ROLE) -> str:
    """Tell how a call of a role ends: an SQLSTATE, or ok. What it did is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local role {role}".encode())
            connection.execute(f"select * from {qualified(call)}".encode())
    except psycopg.Error as error:
        return error.sqlstate or "unknown"
    return "ok"


def outcomes(connection: Connection[Any], verb: str, role: str = ROLE) -> set[str]:
    return {outcome(connection, call, role) for call in CALLS[verb]}


def as_role(connection: Connection[Any], query: str, role: str = ROLE) -> list[Any]:
    with connection.transaction(force_rollback=True):
        connection.execute(f"set local role {role}".encode())
        return connection.execute(query.encode()).fetchall()


def grants(connection: Connection[Any]) -> list[tuple[str, str, str]]:
    return connection.execute("select * from spanmq.list_grants('jobs')").fetchall()


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_a_verb_lets_a_role_do_its_part_and_no_more(roles: Connection[Any], verb: str) -> None:
    roles.execute("select spanmq.grant_queue(%s, 'jobs', %s)", [ROLE, verb])
    for each in CALLS:
        assert outcomes(roles, each) == ({"ok"} if each == verb else {"42501"}), each
    assert grants(roles) == [("jobs", ROLE, verb)]
    assert roles.execute("select spanmq.revoke_queue(%s, 'jobs', %s)", [ROLE, verb]).fetchone() == (True,)
    for each in CALLS:
        assert outcomes(roles, each) == {"42P01"}, each
    assert grants(roles) == []


def test_who_manages_may_do_everything_and_grant_it(roles: Connection[Any]) -> None:
    roles.execute("select spanmq.grant_queue(%s, 'jobs', 'manage')", [ROLE])
    assert {name: outcomes(roles, name) for name in CALLS} == {name: {"ok"} for name in CALLS}
    assert grants(roles) == [("jobs", ROLE, verb) for verb in ("send", "receive", "manage")]
    roles.execute(f"set local role {ROLE}".encode())
    roles.execute("select spanmq.grant_queue(%s, 'jobs', 'manage')", [OTHER])
    roles.execute("reset role")
    assert outcomes(roles, "manage", OTHER) == {"ok"}
    assert as_role(roles, "select pgmq.drop_queue('jobs')", OTHER) == [(True,)]
    assert outcome(roles, f"revoke_queue('{ROLE}', 'jobs', 'manage')", OTHER) == "ok"


def test_a_grant_of_the_role_s_own_goes_with_it(roles: Connection[Any]) -> None:
    roles.execute("select spanmq.grant_queue(%s, 'jobs', 'manage')", [ROLE])
    roles.execute(f"set local role {ROLE}".encode())
    roles.execute(f"grant insert on pgmq.q_jobs to {OTHER}".encode())
    roles.execute("reset role")
    roles.execute(f"grant usage on schema pgmq to {OTHER}".encode())
    assert outcome(roles, "send('jobs', '1')", OTHER) == "ok"
    assert roles.execute("select spanmq.revoke_queue(%s, 'jobs', 'manage')", [ROLE]).fetchone() == (True,)
    assert outcome(roles, "send('jobs', '1')", OTHER) == "42P01"


@pytest.mark.parametrize("verb", ["send", "receive"])
def test_only_who_manages_may_grant(roles: Connection[Any], verb: str) -> None:
    roles.execute("select spanmq.grant_queue(%s, 'jobs', %s)", [ROLE, verb])
    for call in (f"grant_queue('{OTHER}', 'jobs', '{verb}')", f"revoke_queue('{ROLE}', 'jobs', '{verb}')"):
        assert outcome(roles, call) == "42501"
    assert outcome(roles, "list_grants('jobs')") == "42501"
    assert as_role(roles, "select * from spanmq.list_grants()") == []


def test_a_right_by_another_way_stays_and_is_told(roles: Connection[Any]) -> None:
    for role in (ROLE, "public"):
        roles.execute("select spanmq.grant_queue(%s, 'jobs', 'send')", [role])
    assert roles.execute("select spanmq.revoke_queue(%s, 'jobs', 'send')", [ROLE]).fetchone() == (False,)
    assert outcomes(roles, "send") == {"ok"}
    assert grants(roles) == [("jobs", "public", "send")]


def test_a_queue_is_not_there_for_who_has_no_right_on_it(roles: Connection[Any]) -> None:
    roles.execute(
        "select pgmq.create('others'), pgmq.bind_topic('a.b', 'jobs'), pgmq.enable_notify_insert('jobs')"
    )
    roles.execute("select spanmq.grant_queue(%s, 'others', 'receive')", [ROLE])
    for query in (
        "select queue_name from pgmq.list_queues() where queue_name <> 'others'",
        "select queue_name from pgmq.metrics_all() where queue_name <> 'others'",
        "select queue from spanmq.health() where queue <> 'others'",
        "select queue_name from pgmq.list_topic_bindings()",
        "select queue_name from pgmq.list_topic_bindings('jobs')",
        "select queue_name from pgmq.test_routing('a.b')",
        "select queue_name from pgmq.list_notify_insert_throttles()",
    ):
        assert as_role(roles, query) == [], query
        assert roles.execute(query.encode()).fetchall() != [], query
    with pytest.raises(psycopg.errors.UndefinedTable) as raised:
        as_role(roles, "select pgmq.send('jobs', '1')")
    with pytest.raises(psycopg.errors.UndefinedTable) as unknown:
        as_role(roles, "select pgmq.send('nojobs', '1')")
    # Word for word as of a queue that was never made.
    told = [
        f"{error.value.diag.message_primary} {error.value.diag.message_hint}" for error in (raised, unknown)
    ]
    assert told[0] == told[1].replace("nojobs", "jobs")
    assert as_role(roles, "select pgmq.drop_queue('jobs')") == [(False,)]
    assert as_role(roles, "select pgmq.drop_queue('nojobs')") == [(False,)]


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'nobody_there', 'jobs', 'send'", "MQ002"),
        ("null, 'jobs', 'send'", "MQ002"),
        ("'', 'jobs', 'send'", "MQ002"),
        ("'spanmq_test_other', 'jobs', 'read'", "MQ002"),
        ("'spanmq_test_other', 'jobs', null", "MQ002"),
        ("'public', 'jobs', 'manage'", "MQ002"),
        ("'spanmq_test_other', 'nojobs', 'send'", "42P01"),
        ("'x; drop table spanmq_core.held', 'jobs', 'send'", "MQ002"),
    ],
)
def test_what_can_t_be_granted_is_refused(roles: Connection[Any], arguments: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as raised, roles.transaction():
        roles.execute(f"select spanmq.grant_queue({arguments})".encode())
    assert raised.value.sqlstate == sqlstate
    assert grants(roles) == []


# Topics.


def test_topic_reaches_the_queues_into_which_its_sender_may_send(roles: Connection[Any]) -> None:
    roles.execute("select pgmq.create('hidden')")
    roles.execute("select pgmq.bind_topic('a.*', 'hidden'), pgmq.bind_topic('a.*', 'jobs')")
    roles.execute("select spanmq.grant_queue(%s, 'jobs', 'send')", [ROLE])
    assert as_role(roles, "select pgmq.send_topic('a.b', '1'), pgmq.send_topic('a.b', '1', 0)") == [(1, 1)]
    batch = "select queue_name from pgmq.send_batch_topic('a.b', array['1', '2']::jsonb[])"
    assert as_role(roles, batch) == [("jobs",), ("jobs",)]
    assert roles.execute("select pgmq.send_topic('a.b', '1')").fetchone() == (2,)


def test_binding_needs_the_queue_and_the_right_to_bind(roles: Connection[Any]) -> None:
    bind = "bind_topic('#', 'jobs')"
    roles.execute("select spanmq.grant_queue(%s, 'jobs', 'manage')", [ROLE])
    assert outcome(roles, bind) == "42501"
    roles.execute(f"grant execute on function pgmq.bind_topic to {ROLE}".encode())
    assert outcome(roles, bind) == "ok"
    roles.execute(f"revoke insert on pgmq.q_jobs from {ROLE}".encode())
    assert outcome(roles, bind) == "42501"
    change = f"grant insert on pgmq.q_jobs to {ROLE}; revoke trigger on pgmq.q_jobs from {ROLE}"
    roles.execute(change.encode())
    assert outcome(roles, bind) == "42501"
