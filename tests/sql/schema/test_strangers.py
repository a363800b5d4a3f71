"""Roles beside the owner: what they may not have prepared, and what nobody granted them."""

import psycopg
import pytest
from tests.sql.queue import Connection, one, rows, sqlstate_of
from tests.sql.schema.conftest import session_of

from spanmq import schema
from spanmq.errors import NotPossibleError
from spanmq.schema.manager import Difference

SCHEMAS = ("pgmq", "spanmq", "spanmq_call", "spanmq_core")


def expect_refusal(session: Connection, text: str) -> None:
    """Check that neither an installation nor the printed script goes on, and that nothing is left of it."""
    before = rows(session, "select oid, nspname from pg_namespace order by 1")
    for act in (schema.install, lambda session: session.execute(schema.sql().encode())):
        with pytest.raises((NotPossibleError, psycopg.Error), match=text):
            act(session)
        session.execute("rollback")
    assert rows(session, "select oid, nspname from pg_namespace order by 1") == before


@pytest.mark.parametrize("name", SCHEMAS)
def test_installation_into_a_schema_of_a_role_with_fewer_rights_is_refused(
    session: Connection, role: str, name: str
) -> None:
    session.execute(f"create schema {name} authorization {role}".encode())
    expect_refusal(session, f"schema {name} belongs to {role}, not to ")
    session.execute(f"alter schema {name} owner to current_user".encode())
    schema.install(session)
    assert schema.verify(session) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_installation_into_a_schema_where_a_role_may_create_is_refused(
    session: Connection, role: str, name: str
) -> None:
    session.execute(f"create schema {name}; grant create on schema {name} to {role}".encode())
    expect_refusal(session, f"schema {name} {role} has CREATE")
    session.execute(f"revoke create on schema {name} from {role}".encode())
    schema.install(session)


def test_installation_over_a_function_of_a_role_with_fewer_rights_is_refused(
    session: Connection, role: str
) -> None:
    session.execute("create schema pgmq")
    session.execute(
        "create function pgmq.send(text, jsonb) returns setof bigint language sql as 'select 1::bigint'"
    )
    session.execute(f"alter function pgmq.send(text, jsonb) owner to {role}".encode())
    expect_refusal(session, f"belongs to {role}, not to ")


def test_ledger_that_is_a_view_is_not_read(session: Connection, role: str) -> None:
    session.execute("create sequence public.ran; grant all on sequence public.ran to public")
    session.execute(f"create schema spanmq_core authorization {role}; set role {role}".encode())
    session.execute(
        "create view spanmq_core.release as"
        " select nextval('public.ran')::text as version, '' as functions_checksum, 1 as id"
    )
    session.execute(
        "create view spanmq_core.migration as select nextval('public.ran')::text as name, '' as checksum"
    )
    session.execute("reset role")
    for act in (schema.state, schema.verify):
        act(session)
    with pytest.raises(NotPossibleError):
        schema.install(session)
    assert one(session, "select is_called from public.ran") is False


@pytest.fixture
def installed(session: Connection) -> Connection:
    schema.install(session)
    session.execute("select pgmq.create('orders')")
    return session


CHANGES = [
    ("alter schema pgmq owner to {0}", "schema", "pgmq", "owner", "belongs to {0}, not to {1}"),
    ("grant create on schema pgmq to {0}", "schema", "pgmq", "privilege", "{0} has CREATE: revoke it"),
    (
        "grant create on schema spanmq to public",
        "schema",
        "spanmq",
        "privilege",
        "public has CREATE: revoke it",
    ),
    (
        "grant select on spanmq_core.access_key to {0}",
        "table",
        "spanmq_core.access_key",
        "privilege",
        "{0} has SELECT: revoke it",
    ),
    (
        "create function pgmq.own() returns int language sql as 'select 1'; alter function pgmq.own() owner to {0}",
        "function",
        "pgmq.own()",
        "owner",
        "belongs to {0}, not to {1}",
    ),
]


@pytest.mark.parametrize(("change", "kind", "name", "problem", "detail"), CHANGES)
def test_verify_and_doctor_report_rights_that_were_not_granted_as_verbs(
    installed: Connection, role: str, change: str, kind: str, name: str, problem: str, detail: str
) -> None:
    assert doctor(installed) == ("ok", "no role but the owner has rights beside the verbs")
    installed.execute(change.format(role).encode())
    detail = detail.format(role, one(installed, "select current_user"))
    assert schema.verify(installed) == [Difference(kind, name, problem, detail)]
    assert doctor(installed) == ("problem", f"{kind} {name} {detail}")


def doctor(session: Connection) -> tuple[str, str]:
    ((level, finding),) = rows(
        session, "select level, finding from spanmq.doctor() where check_name = 'rights'"
    )
    return level, finding


def test_upgrade_of_a_schema_whose_owner_was_changed_is_refused(installed: Connection, role: str) -> None:
    installed.execute(f"alter schema pgmq owner to {role}".encode())
    with pytest.raises(NotPossibleError, match="schema pgmq belongs to") as caught:
        schema.upgrade(installed)
    assert (caught.value.hint or "").startswith("alter schema pgmq owner to ")


def test_doctor_reports_a_function_that_was_granted_without_its_verb(
    installed: Connection, role: str
) -> None:
    installed.execute(f"grant execute on function spanmq_call.purge_queue(text) to {role}".encode())
    assert doctor(installed) == (
        "problem",
        f"function spanmq_call.purge_queue(text) {role} has EXECUTE without a verb: revoke it",
    )
    installed.execute("select spanmq.grant_all(%s, 'manage')", [role])
    assert doctor(installed)[0] == "ok"


def test_default_privileges_grant_nothing_on_the_schema_s_tables(
    session: Connection, empty_database: str, role: str
) -> None:
    for kind in ("tables", "sequences", "schemas"):
        session.execute(f"alter default privileges grant all on {kind} to {role}".encode())
    schema.install(session)
    session.execute("select pgmq.create('orders')")
    assert doctor(session)[0] == "ok"
    with session_of(empty_database, role) as theirs:
        for table in ("access_key", "queue", "log_1"):
            assert sqlstate_of(theirs, f"select * from spanmq_core.{table}") == "42501"
        # The owner lets the role read logs; the rest stays closed.
        session.execute(f"grant usage on schema spanmq_core to {role}".encode())
        assert sqlstate_of(theirs, "select * from spanmq_core.access_key") == "42501"
    assert schema.verify(session) == []


@pytest.mark.parametrize("kind", ["superuser", "ordinary owner"])
def test_rights_of_the_owner_are_not_revoked(
    session: Connection, empty_database: str, role: str, kind: str
) -> None:
    name = role if kind == "ordinary owner" else one(session, "select current_user")
    session.execute(f"grant create on database {session.info.dbname} to {role}".encode())
    with session_of(empty_database, name) as owner:
        schema.install(owner)
        owner.execute("select pgmq.create('orders'), spanmq.grant_queue('public', 'orders', 'look')")
        for call in ("spanmq.revoke_queue(%s, 'orders', 'look')", "spanmq.revoke_all(%s, 'send')"):
            with pytest.raises(psycopg.Error, match=f"rights of role {name} can't be revoked") as caught:
                owner.execute(f"select {call}".encode(), [name])
            assert caught.value.sqlstate == "MQ004"
        assert one(owner, "select pgmq.send('orders', '{}')") == 1
        assert one(owner, "select pgmq.drop_queue('orders')") is True


def test_doctor_reports_an_owner_without_rights(session: Connection, empty_database: str, role: str) -> None:
    session.execute(f"grant create on database {session.info.dbname} to {role}".encode())
    with session_of(empty_database, role) as owner:
        schema.install(owner)
        owner.execute("select pgmq.create('orders')")
        owner.execute(f"revoke select on pgmq.a_orders from {role}".encode())
        assert doctor(owner) == ("problem", f"table pgmq.a_orders its owner {role} lacks SELECT")
