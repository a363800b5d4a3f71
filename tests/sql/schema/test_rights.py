"""Grants after an upgrade, and after a restore without privileges."""

from typing import Any

import pytest
from tests.sql.queue import Connection, one, rows, sqlstate_of
from tests.sql.schema.conftest import session_of

from spanmq import schema


@pytest.fixture
def owner(connection: Connection) -> Connection:
    """A session with queues `jobs` and `others`, and grants on them to roles and to public."""
    connection.execute("create role spanmq_test_kept; create role spanmq_test_gone")
    connection.execute("select pgmq.create('jobs'), pgmq.create('others')")
    for role, queue, verb in (
        ("spanmq_test_kept", "jobs", "manage"),
        ("public", "others", "look"),
        ("spanmq_test_gone", "others", "manage"),
    ):
        connection.execute("select spanmq.grant_queue(%s, %s, %s)", [role, queue, verb])
    connection.execute(
        "select spanmq.grant_all('spanmq_test_kept', 'create'), spanmq.grant_all('public', 'send')"
    )
    # Now there are wrappers that no role may call.
    for verb in ("look", "send"):
        connection.execute("select spanmq.revoke_queue('spanmq_test_gone', 'others', %s)", [verb])
    return connection


def privileges(session: Connection) -> list[Any]:
    return rows(
        session,
        "select p.oid::regprocedure::text, a.grantee::regrole::text from pg_proc p cross join aclexplode(proacl) a"
        " where pronamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call') order by 1, 2",
    )


def test_upgrade_keeps_grants_and_gives_them_on_new_functions(owner: Connection) -> None:
    grants, before = rows(owner, "select * from spanmq.list_grants()"), privileges(owner)
    number = one(owner, "select queue_id from spanmq_core.queue where name = 'jobs'")
    # As if the version before had not had them.
    owner.execute(f"drop function spanmq.ack, spanmq_call.ack_{number}, spanmq_call.ack".encode())
    owner.execute("drop function spanmq_call.send_messages cascade")
    schema.upgrade(owner)
    assert rows(owner, "select * from spanmq.list_grants()") == grants
    assert privileges(owner) == before


def test_upgrade_after_a_restore_without_privileges_leaves_no_right_to_everybody(owner: Connection) -> None:
    """What `pg_restore --no-privileges` makes has the privileges of new objects: EXECUTE for everybody."""
    owner.execute(
        """
        do $$
        declare
            it record;
        begin
            for it in select p.oid::regprocedure as name from pg_proc p
                      where pronamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core') loop
                execute format('grant execute on function %s to public', it.name);
                update pg_proc p set proacl = null where p.oid = it.name;
            end loop;
        end $$
        """
    )
    schema.upgrade(owner)
    assert rows(owner, "select * from spanmq.list_grants()") == []
    owner.execute("set role spanmq_test_gone")
    for call in ("pgmq.send('jobs', '1')", "spanmq.maintain()", "pgmq.create('made')"):
        assert sqlstate_of(owner, f"select {call}") in ("42501", "42P01")


def test_default_privileges_of_the_owner_grant_no_verb(
    session: Connection, empty_database: str, role: str
) -> None:
    for kind in ("functions", "tables", "sequences"):
        session.execute(f"alter default privileges grant all on {kind} to {role}".encode())
    schema.install(session)
    session.execute("select pgmq.create('orders'), spanmq.grant_queue('public', 'orders', 'send')")
    grants = [("orders", "public", "send")]
    assert rows(session, "select * from spanmq.list_grants()") == grants
    # As if the version before had not had them.
    session.execute(
        "drop function spanmq.ack, spanmq_call.ack; drop function spanmq_call.send_messages cascade"
    )
    session.execute("drop function spanmq_call.may_admin")
    schema.upgrade(session)
    assert rows(session, "select * from spanmq.list_grants()") == grants
    with session_of(empty_database, role) as theirs:
        for call in (
            "select * from spanmq.ack('orders', 1, '{1}')",
            "select spanmq_call.purge_queue('orders')",
            "select spanmq.list_tokens()",
            "select spanmq.grant_all('public', 'manage')",
            "insert into spanmq_call.caller (proof, role) values (gen_random_uuid(), 'postgres')",
            "insert into pgmq.topic_bindings (pattern, queue_name) values ('#', 'orders')",
            "delete from pgmq.q_orders",
            "insert into pgmq.a_orders (msg_id, vt) values (1, now())",
            "select setval('pgmq.q_orders_msg_id_seq', 1)",
        ):
            assert sqlstate_of(theirs, call) == "42501", call
        assert one(theirs, "select pgmq.send('orders', '{}')") == 1


def test_verb_is_enough_where_new_functions_are_not_public(
    session: Connection, empty_database: str, role: str
) -> None:
    session.execute("alter default privileges revoke execute on functions from public")
    schema.install(session)
    session.execute("select pgmq.create('orders')")
    session.execute("select spanmq.grant_queue(%s, 'orders', 'send')", [role])
    session.execute("revoke execute on function pgmq.metrics_all() from public")
    schema.upgrade(session)
    with session_of(empty_database, role) as theirs:
        assert one(theirs, "select pgmq.send('orders', '{}')") == 1
        assert sqlstate_of(theirs, "select spanmq.grant_all('public', 'send')") == "42501"
        assert sqlstate_of(theirs, "select * from pgmq.metrics_all()") == "42501"
