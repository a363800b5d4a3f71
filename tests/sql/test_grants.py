"""Grants: who may give them, what stays when they are taken back, and what a role without one is shown."""

from typing import Any

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql import rights
from tests.sql.queue import Connection, column, one, rows, sqlstate_of

ROLE = "spanmq_test_granted"
OTHER = "spanmq_test_other"
SEND = "select pgmq.send('jobs', '1')"


@pytest.fixture
def roles(jobs: Connection) -> Connection:
    """A queue `jobs`, and two roles without any right."""
    jobs.execute(f"create role {ROLE}; create role {OTHER}".encode())
    return jobs


def outcome(connection: Connection, call: str, role: str = ROLE) -> str:
    """Return how a call of a role ends: an SQLSTATE, or ok. What it did is rolled back."""
    return rights.outcome(connection, f"select * from {qualified(call)}", role)


def as_role(connection: Connection, query: str, role: str = ROLE) -> list[Any]:
    with connection.transaction(force_rollback=True):
        connection.execute(f"set local role {role}".encode())
        return connection.execute(query.encode()).fetchall()


def give(connection: Connection, verb: str, role: str = ROLE, queue: str = "jobs") -> None:
    connection.execute("select spanmq.grant_queue(%s, %s, %s)", [role, queue, verb])


def take(connection: Connection, verb: str, role: str = ROLE) -> bool:
    return bool(one(connection, "select spanmq.revoke_queue(%s, 'jobs', %s)", role, verb))


def grants(connection: Connection, queue: str | None = "jobs") -> list[Any]:
    return rows(connection, "select * from spanmq.list_grants(%s)", queue)


def test_grants_are_listed_without_what_others_include(roles: Connection) -> None:
    give(roles, "look")
    give(roles, "receive")
    give(roles, "receive")
    give(roles, "send", "public")
    assert grants(roles) == [("jobs", "public", "send"), ("jobs", ROLE, "receive")]
    give(roles, "manage")
    rows(roles, "select spanmq.grant_all(%s, 'admin'), spanmq.grant_create(%s)", OTHER, OTHER)
    everywhere = [(None, OTHER, "create"), (None, OTHER, "admin")]
    assert grants(roles, None) == [*everywhere, ("jobs", "public", "send"), ("jobs", ROLE, "manage")]


def test_grants_of_a_queue_are_listed_with_those_on_all_queues(roles: Connection) -> None:
    give(roles, "send")
    rows(roles, "select spanmq.grant_all(%s, 'receive'), spanmq.grant_all(%s, 'admin')", OTHER, OTHER)
    assert grants(roles) == [(None, OTHER, "receive"), ("jobs", ROLE, "send")]


@pytest.mark.parametrize(
    ("granted", "revoked", "left"),
    [
        ("send", "send", []),
        ("receive", "receive", []),
        ("receive", "look", []),
        ("manage", "send", ["receive"]),
        ("manage", "receive", ["send"]),
        ("manage", "manage", []),
        ("look", "receive", []),
    ],
)
@pytest.mark.parametrize("where", ["queue", "all"])
def test_revoking_a_verb_takes_what_it_includes_and_what_includes_it(
    roles: Connection, granted: str, revoked: str, left: list[str], where: str
) -> None:
    name = None if where == "all" else "jobs"
    of_queue = "" if where == "all" else "'jobs', "
    rows(roles, f"select spanmq.grant_{where}(%s, {of_queue}%s)", ROLE, granted)
    if where == "all":
        rows(roles, "select pgmq.create('later')")
    rows(roles, f"select spanmq.revoke_{where}(%s, {of_queue}%s)", ROLE, revoked)
    assert grants(roles, name) == [(name, ROLE, verb) for verb in left]
    can_look = "receive" in left
    for relation in ("q_jobs", "a_jobs", "q_later", "a_later")[: 4 if where == "all" else 2]:
        query = "select has_table_privilege(%s, %s, 'select')"
        assert one(roles, query, ROLE, f"pgmq.{relation}") is can_look


def test_right_to_look_at_all_stays_with_that_at_one(roles: Connection) -> None:
    rows(roles, "select spanmq.grant_all(%s, 'look')", ROLE)
    give(roles, "look")
    rows(roles, "select spanmq.revoke_all(%s, 'look')", ROLE)
    assert as_role(roles, "select count(*) from pgmq.q_jobs") == [(0,)]
    rows(roles, "select spanmq.grant_all(%s, 'look')", ROLE)
    assert take(roles, "look") is False
    assert as_role(roles, "select count(*) from pgmq.q_jobs") == [(0,)]


def test_function_of_two_verbs_stays_with_the_one_that_is_left(roles: Connection) -> None:
    rows(roles, "select spanmq.schedule('tick', 'jobs', '* * * * *', '1')")
    plan = "select spanmq.plan_schedule('tick', now(), array[now()], now())"
    for left, revoked in (("send", "maintain"), ("maintain", "send")):
        rows(roles, "select spanmq.grant_all(%s, %s), spanmq.grant_all(%s, %s)", ROLE, left, ROLE, revoked)
        rows(roles, "select spanmq.revoke_all(%s, %s)", ROLE, revoked)
        assert as_role(roles, plan) == [(False,)]


def test_maker_of_a_queue_manages_it_and_may_grant_it(roles: Connection) -> None:
    rows(roles, "select spanmq.grant_create(%s)", ROLE)
    roles.execute(f"set local role {ROLE}".encode())
    rows(roles, "select pgmq.create('own')")
    assert grants(roles, "own") == [("own", ROLE, "manage")]
    give(roles, "manage", OTHER, "own")
    assert sqlstate_of(roles, SEND) == "42P01"
    roles.execute("reset role")
    assert outcome(roles, f"revoke_queue('{ROLE}', 'own', 'manage')", OTHER) == "ok"
    assert as_role(roles, "select pgmq.drop_queue('own')", OTHER) == [(True,)]


def test_queue_of_the_same_name_is_another(roles: Connection) -> None:
    give(roles, "manage")
    rows(roles, "select pgmq.drop_queue('jobs'), pgmq.create('jobs')")
    assert grants(roles) == []
    assert outcome(roles, "send('jobs', '1')") == "42P01"


def test_right_by_another_way_stays_and_is_reported(roles: Connection) -> None:
    give(roles, "send")
    give(roles, "send", "public")
    assert take(roles, "send") is False
    assert outcome(roles, "send('jobs', '1')") == "ok"
    assert take(roles, "send", "public") is True
    give(roles, "send", OTHER)
    roles.execute(f"grant {OTHER} to {ROLE}".encode())
    assert take(roles, "send") is False
    assert outcome(roles, "send('jobs', '1')") == "ok"


def test_role_with_rights_can_be_dropped(roles: Connection) -> None:
    give(roles, "manage")
    rows(roles, "select spanmq.grant_all(%s, 'look')", ROLE)
    roles.execute(f"drop owned by {ROLE}; drop role {ROLE}".encode())
    assert grants(roles, None) == []


def test_queue_does_not_exist_for_a_role_without_a_right_on_it(roles: Connection) -> None:
    roles.execute(
        "select pgmq.create('others'), pgmq.bind_topic('a.b', 'jobs'), pgmq.enable_notify_insert('jobs'),"
        " spanmq.schedule('tick', 'jobs', '* * * * *', '1'), pgmq.send('jobs', '1'), spanmq.maintain(),"
        " spanmq.maintain()"
    )
    give(roles, "receive", queue="others")
    for query in (
        "select queue_name from pgmq.list_queues() where queue_name <> 'others'",
        "select queue_name from pgmq.metrics_all() where queue_name <> 'others'",
        "select queue from spanmq.health() where queue <> 'others'",
        "select queue from spanmq.count_messages() where queue <> 'others'",
        "select name from spanmq.list_schedules()",
        "select queue_name from pgmq.list_topic_bindings()",
        "select queue_name from pgmq.list_topic_bindings('jobs')",
        "select queue_name from pgmq.test_routing('a.b')",
        "select queue_name from pgmq.list_notify_insert_throttles()",
    ):
        assert as_role(roles, query) == [], query
        assert rows(roles, query) != [], query
    messages = []
    for queue in ("jobs", "nojobs"):
        with pytest.raises(psycopg.errors.UndefinedTable) as raised:
            as_role(roles, f"select pgmq.send('{queue}', '1')")
        messages.append(str(raised.value.diag.message_primary).replace("nojobs", "jobs"))
        assert as_role(roles, f"select pgmq.drop_queue('{queue}')") == [(False,)]
    assert messages[0] == messages[1]
    # On all queues it has no right, either.
    for call in ("dead_letters()", "count_dead_letters()", "list_pipeline_runs()", "list_receivers()"):
        assert outcome(roles, call) == "42501", call


# Topics.


def test_topic_reaches_the_queues_into_which_its_sender_may_send(roles: Connection) -> None:
    roles.execute("select pgmq.create('hidden')")
    roles.execute("select pgmq.bind_topic('a.*', 'hidden'), pgmq.bind_topic('a.*', 'jobs')")
    give(roles, "send")
    assert as_role(roles, "select pgmq.send_topic('a.b', '1'), pgmq.send_topic('a.b', '1', 0)") == [(1, 1)]
    batch = "select queue_name from pgmq.send_batch_topic('a.b', array['1', '2']::jsonb[])"
    assert as_role(roles, batch) == [("jobs",), ("jobs",)]
    assert column(roles, "select pgmq.send_topic('a.b', '1')") == [2]
