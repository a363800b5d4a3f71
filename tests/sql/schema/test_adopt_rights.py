"""A take-over leaves every role what it could do."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.queue import Connection, one, rows
from tests.sql.schema.conftest import new_role, session_of
from tests.sql.schema.upstream import fill, messages

from spanmq import schema
from spanmq.errors import MissingPrivilegeError, NotPossibleError
from spanmq.schema.adopt import adopt


@pytest.fixture
def role(upstream: Connection) -> Iterator[str]:
    for name in new_role(upstream):
        upstream.execute(f"grant usage on schema pgmq to {name}".encode())
        yield name


def grant(session: Connection, what: str, role: str) -> None:
    session.execute(f"grant {what} to {role}".encode())


def denied(session: Connection, call: str) -> bool:
    try:
        session.execute(call.encode())
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable):
        # A role with no right on a queue does not see that it is there.
        return True
    return False


def test_grants_on_the_table_are_grants_on_the_view(
    filled: Connection, upstream_database: str, role: str
) -> None:
    fill(filled, "others")
    # What PGMQ needs to send: insert, and select for what it returns.
    grant(filled, "insert, select on pgmq.q_orders", role)
    (orders, others) = adopt(filled).queues
    assert (orders.grantees, others.grantees) == (("pg_monitor", role), ("pg_monitor",))
    with session_of(upstream_database, role) as theirs:
        assert one(theirs, "select pgmq.send('orders', '{}')") == 61
        assert one(theirs, "select count(*) from pgmq.q_orders") == 45
        assert denied(theirs, "select pgmq.read('orders', 0, 1)")
        assert denied(theirs, "select pgmq.delete('orders', 1)")
        assert denied(theirs, "select pgmq.purge_queue('orders')")
        assert denied(theirs, "select pgmq.send('others', '{}')")
        assert denied(theirs, "select * from spanmq_core.unsettled")


@pytest.mark.parametrize(
    ("privileges", "verbs"),
    [
        ("select", ["look"]),
        ("insert", ["send"]),
        ("update", []),
        ("select, update, delete", ["receive"]),
        ("all", ["send", "receive"]),
        ("all with grant option", ["manage"]),
        # The option on one privilege manages nothing.
        ("all, select with grant option", ["send", "receive"]),
    ],
)
def test_privileges_become_verbs(filled: Connection, role: str, privileges: str, verbs: list[str]) -> None:
    for privilege in privileges.split(", "):
        what, _, option = privilege.partition(" with ")
        grant(filled, f"{what} on pgmq.q_orders", f"{role} {option and 'with ' + option}")
    grant(filled, "select on pgmq.q_orders", "public")
    adopt(filled)
    query = "select verb from spanmq.list_grants('orders') where role = %s"
    assert [verb for (verb,) in rows(filled, query, role)] == verbs
    assert rows(filled, query, "public") == [("look",)]


def test_default_privileges_grant_nothing_on_queues_that_withheld_it(upstream: Connection, role: str) -> None:
    grant(upstream, "usage on schema pgmq", role)
    upstream.execute(f"alter default privileges in schema pgmq grant all on tables to {role}".encode())
    upstream.execute(f"alter default privileges grant execute on functions to {role}".encode())
    fill(upstream, "secret")
    upstream.execute(f"revoke all on pgmq.q_secret, pgmq.a_secret from {role}, pg_monitor".encode())
    adopt(upstream)
    assert rows(upstream, "select * from spanmq.list_grants()") == []
    may = "select bool_or(has_table_privilege(r, t, 'select, insert, update, delete, trigger'))"
    may += " from unnest(%s::text[]) r, unnest('{pgmq.q_secret,pgmq.a_secret}'::text[]) t"
    assert one(upstream, may, [role, "pg_monitor"]) is False


def test_owner_of_a_queue_can_do_everything_as_before(
    upstream: Connection, upstream_database: str, role: str
) -> None:
    grant(upstream, "create on schema pgmq", role)
    grant(upstream, "insert, select on pgmq.meta", role)
    with session_of(upstream_database, role) as theirs:
        fill(theirs, "orders")
        before = messages(theirs, "orders")
        assert adopt(upstream).messages == 44
        assert messages(theirs, "orders") == before
        assert one(theirs, "select pgmq.send('orders', '{}')") == 61
        assert one(theirs, "select count(*) from pgmq.read('orders', 60, 1)") == 1
        assert one(theirs, "select pgmq.archive('orders', 61)") is True
        assert one(theirs, "select count(*) from pgmq.a_orders") == 4
        assert one(theirs, "select pgmq.purge_queue('orders')") == 44
        assert one(theirs, "select pgmq.drop_queue('orders')") is True
    assert schema.verify(upstream) == []


def test_who_may_call_a_function_may_call_ours(filled: Connection, upstream_database: str, role: str) -> None:
    grant(filled, "all on pgmq.q_orders", role)
    filled.execute("revoke execute on function pgmq.purge_queue(text) from public")
    filled.execute("revoke execute on function pgmq.metrics(text) from public")
    grant(filled, "execute on function pgmq.metrics(text)", role)
    adopt(filled)
    with session_of(upstream_database, role) as theirs:
        assert denied(theirs, "select pgmq.purge_queue('orders')")
        assert one(theirs, "select queue_length from pgmq.metrics('orders')") == 44
        assert one(theirs, "select pgmq.send('orders', '{}')") == 61


def test_who_may_read_the_settings_may_read_ours(
    filled: Connection, upstream_database: str, role: str
) -> None:
    grant(filled, "select on pgmq.meta, pgmq.topic_bindings, pgmq.notify_insert_throttle", role)
    adopt(filled)
    with session_of(upstream_database, role) as theirs:
        assert rows(theirs, "select queue_name from pgmq.meta") == [("orders",)]
        assert rows(theirs, "select * from pgmq.topic_bindings") == []
        assert rows(theirs, "select * from pgmq.notify_insert_throttle") == []


def test_role_that_does_not_own_pgmq_changes_nothing(
    filled: Connection, upstream_database: str, role: str
) -> None:
    before = messages(filled, "orders")
    grant(filled, f"create on database {filled.info.dbname}", role)
    with session_of(upstream_database, role) as theirs, pytest.raises(MissingPrivilegeError):
        adopt(theirs)
    assert messages(filled, "orders") == before
    assert one(filled, "select pgmq.send('orders', '{}')") == 61


def test_monitoring_sees_what_it_saw(filled: Connection) -> None:
    watched = "select array_agg(has_table_privilege('pg_monitor', t, 'select')) from unnest(array["
    watched += "'pgmq.q_orders', 'pgmq.a_orders', 'pgmq.meta']) t"
    assert one(filled, watched) == [True, True, True]
    adopt(filled)
    assert one(filled, watched) == [True, True, True]


def test_nobody_s_trigger_runs_with_the_rights_of_the_schema_s_owner(filled: Connection, role: str) -> None:
    grant(filled, "trigger, references, select on pgmq.a_orders", role)
    filled.execute(
        "create function public.theirs() returns trigger language plpgsql as 'begin return new; end';"
        f" alter function public.theirs() owner to {role};"
        " create trigger theirs before insert on pgmq.a_orders for each row execute function public.theirs()".encode()
    )
    with pytest.raises(NotPossibleError, match="trigger theirs on"):
        adopt(filled)
    filled.execute("drop trigger theirs on pgmq.a_orders")
    adopt(filled)
    for privilege, is_there in (("select", True), ("trigger", False), ("references", False)):
        query = "select has_table_privilege(%s, 'pgmq.a_orders', %s)"
        assert one(filled, query, role, privilege) is is_there


def test_foreign_key_on_an_archive_is_refused(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    upstream.execute("create table public.theirs (id bigint references pgmq.a_orders on delete cascade)")
    with pytest.raises(NotPossibleError, match="foreign key theirs_id_fkey of"):
        adopt(upstream)
    upstream.execute("drop table public.theirs")
    adopt(upstream)


def test_table_grants_are_followed_by_choice(filled: Connection, upstream_database: str, role: str) -> None:
    grant(filled, "all on pgmq.q_orders, pgmq.a_orders", role)
    adopt(filled, follow_table_grants=True)
    query = "select verb from spanmq.list_grants('orders') where role = %s"
    assert rows(filled, query, role) == [("manage",)]
    with session_of(upstream_database, role) as theirs:
        assert one(theirs, "select pgmq.send('orders', '{}')") == 61
        assert one(theirs, "select pgmq.purge_queue('orders')") == 45
    filled.execute(f"revoke all on pgmq.q_orders from {role}; select spanmq.follow_table_grants()".encode())
    assert rows(filled, query, role) == []
    assert schema.verify(filled) == []
