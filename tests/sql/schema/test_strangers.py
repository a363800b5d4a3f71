"""Roles beside the owner: what they may not have prepared, and what nobody granted them."""

import re

import psycopg
import pytest
from tests.sql.queue import Connection, one, rows
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


# What a role can have of a schema before, what an installation says of it, and what an owner does then.
PREPARED = (
    (
        "create schema {0} authorization {1}",
        "belongs to {1}, not to ",
        "alter schema {0} owner to current_user",
    ),
    (
        "create schema {0}; grant create on schema {0} to {1}",
        "{1} has CREATE",
        "revoke create on schema {0} from {1}",
    ),
)


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize(("before", "refusal", "remedy"), PREPARED, ids=["owns", "may create"])
def test_installation_into_a_schema_that_a_role_with_fewer_rights_has_a_hand_in_is_refused(
    session: Connection, role: str, name: str, before: str, refusal: str, remedy: str
) -> None:
    session.execute(before.format(name, role).encode())
    expect_refusal(session, f"schema {name} {refusal.format(name, role)}")
    session.execute(remedy.format(name, role).encode())
    schema.install(session)
    assert schema.verify(session) == []


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
    for function in ("purge_queue(text,uuid)", "purge_queue(text)"):
        installed.execute(f"grant execute on function spanmq_call.{function} to {role}".encode())
        assert doctor(installed) == (
            "problem",
            f"function spanmq_call.{function} {role} has EXECUTE without a verb: revoke it",
        )
        installed.execute("select spanmq.grant_all(%s, 'manage')", [role])
        # The form that makes no record is no verb's.
        assert doctor(installed)[0] == ("ok" if "uuid" in function else "problem")
        installed.execute("select spanmq.revoke_all(%s, 'manage')", [role])


def test_default_privileges_grant_nothing_on_the_schema_s_tables(session: Connection, role: str) -> None:
    for kind in ("tables", "sequences", "schemas"):
        session.execute(f"alter default privileges grant all on {kind} to {role}".encode())
    schema.install(session)
    make_all_kinds(session)
    assert doctor(session)[0] == "ok"
    session.execute(f"grant usage on schema spanmq_core to {role}".encode())
    assert rows(session, HELD, role) == SELECTED + LEDGER
    assert schema.verify(session) == []


# Of all that there is in the schemas, the privileges that a role has.
HELD = """
    select c.relnamespace::regnamespace || '.' || regexp_replace(c.relname, '[0-9]+(_[0-9]+)?', 'N'), a.privilege_type
    from pg_class c cross join lateral aclexplode(c.relacl) a
    where c.relnamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')
      and a.grantee = %s::regrole
    group by 1, 2 order by 1, 2
"""
LEDGER = [(f"spanmq_core.{name}", "SELECT") for name in ("migration", "object_checksum", "release")]
# As the documentation says, of default privileges SELECT is left on what is PGMQ's.
SELECTED = [
    (f"pgmq.{name}", "SELECT")
    for name in (
        "a_orders",
        "a_theirs",
        "meta",
        "notify_insert_throttle",
        "q_orders",
        "q_orders_msg_id_seq",
        "q_theirs",
        "topic_bindings",
    )
]


def make_all_kinds(session: Connection) -> None:
    """Make a queue with everything that a queue may have of its own."""
    session.execute("select pgmq.create('orders'), pgmq.enable_notify_insert('orders')")
    session.execute("select spanmq.set_policy('orders', '{\"max_backlog\": 9999, \"rate_limit\": 5}')")
    session.execute("select spanmq.receiver_open('orders'), spanmq.create_subscription('theirs', 'orders')")
    session.execute("select pgmq.create('gone'), pgmq.drop_queue('gone')")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[3000]))")
    for _ in range(3):
        session.execute("select spanmq.maintain()")


def test_upgrade_revokes_what_an_older_release_left(session: Connection, role: str) -> None:
    schema.install(session)
    make_all_kinds(session)
    for name in SCHEMAS:
        for kind in ("tables", "sequences"):
            session.execute(f"grant all on all {kind} in schema {name} to {role}".encode())
    assert {difference.problem for difference in schema.verify(session)} == {"privilege"}
    session.execute("update spanmq_core.release set functions_checksum = 'older'")
    assert schema.upgrade(session).functions_applied
    written = ("DELETE", "INSERT", "SELECT", "TRUNCATE", "UPDATE")
    left = [
        (name, privilege)
        for name, _ in SELECTED
        for privilege in (written if re.match(r"pgmq\.[aq]_(?!.*_seq)", name) else ("SELECT",))
    ]
    held = [row for row in rows(session, HELD, role) if row[1] != "MAINTAIN"]
    assert held == [*left, ("spanmq.log_N", "SELECT"), *LEDGER]
    assert schema.verify(session) == []


WRITES = "select string_agg(p.log, ' ') from unnest(%s::text[]) p (log) where has_table_privilege(%s, p.log, 'insert')"


@pytest.mark.parametrize("everywhere", [False, True])
def test_bulk_writer_may_write_into_the_segments_of_its_queues_alone(
    session: Connection, role: str, everywhere: bool
) -> None:
    schema.install(session)
    session.execute("select pgmq.create('orders'), pgmq.create('others')")
    if everywhere:
        session.execute("select spanmq.grant_all(%s, 'bulk')", [role])
    else:
        session.execute("select spanmq.grant_queue(%s, 'orders', 'bulk')", [role])
    # Those that are there, and those to come.
    reserve = "select 'spanmq_core.' || log_table from spanmq.bulk_reserve(%s, 'w', %s, 10)"
    logs = []
    for epoch in (1, 2):
        session.execute(f"set role {role}".encode())
        logs.append(one(session, reserve, "orders", epoch))
        session.execute("reset role")
        session.execute("select setval('pgmq.q_orders_msg_id_seq', 1000000)")
    assert one(session, WRITES, logs, role) == " ".join(logs)
    assert schema.verify(session) == []
    session.execute("select spanmq.maintain()")
    assert one(session, WRITES, logs, role) == " ".join(logs)
    if not everywhere:
        assert {name for name, _ in rows(session, HELD, role)} == {"spanmq_core.log_N"}
        assert one(session, "select has_table_privilege(%s, 'spanmq_core.log_2', 'insert')", role) is False
        session.execute(f"set role {role}".encode())
        with pytest.raises(psycopg.errors.UndefinedTable):
            one(session, reserve, "others", 1)
        session.execute("reset role")
    # The right to write goes at once, with the verb or with that to send.
    revoke = "revoke_all(%s, 'send')" if everywhere else "revoke_queue(%s, 'orders', 'send')"
    session.execute(f"select spanmq.{revoke}".encode(), [role])
    assert rows(session, HELD, role) == []
    assert schema.verify(session) == []


def test_insert_on_a_log_without_the_verb_is_revoked(installed: Connection, role: str) -> None:
    installed.execute("select spanmq.grant_queue(%s, 'orders', 'send')", [role])
    installed.execute(
        f"grant usage on schema spanmq_core to {role}; grant insert on spanmq_core.log_1 to {role}".encode()
    )
    installed.execute("select spanmq.maintain()")
    assert rows(installed, HELD, role) == []
    with pytest.raises(psycopg.Error, match="not everybody can write in bulk"):
        installed.execute("select spanmq.grant_queue('public', 'orders', 'bulk')")


def test_doctor_reports_an_owner_without_rights(session: Connection, empty_database: str, role: str) -> None:
    session.execute(f"grant create on database {session.info.dbname} to {role}".encode())
    with session_of(empty_database, role) as owner:
        schema.install(owner)
        owner.execute("select pgmq.create('orders')")
        owner.execute(f"revoke select on pgmq.a_orders from {role}".encode())
        assert doctor(owner) == ("problem", f"table pgmq.a_orders its owner {role} lacks SELECT")
