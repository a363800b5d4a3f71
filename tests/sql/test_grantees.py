"""What a role can do to others with every privilege that PostgreSQL knows, on every object that an owner may grant."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.queue import Connection, column, one, rows
from tests.sql.rights import RELATIONS, ROLE, calls, give, is_refusal, outcome, own_role
from tests.sql.seeds import IS_DEEP

from spanmq import schema

ABLE = "spanmq_test_able"
deep = pytest.mark.skipif(not IS_DEEP, reason="one of many cases, of which make test runs a few")
SCHEMAS = ("pgmq", "spanmq", "spanmq_call", "spanmq_core")
# What is granted of one queue, `jobs`, and what all queues share in the schemas that programs use.
GRANTED = (
    "pgmq.q_jobs",
    "pgmq.a_jobs",
    "pgmq.q_jobs_msg_id_seq",
    "pgmq.meta",
    "pgmq.topic_bindings",
    "pgmq.notify_insert_throttle",
    "spanmq.log_{jobs}",
)
MODES = (
    "access exclusive",
    "exclusive",
    "share row exclusive",
    "share",
    "share update exclusive",
    "row exclusive",
    "row share",
    "access share",
)
# Code of theirs, and what calls it where a role with the privilege may hang it: {0} is a relation of ours.
CODE = """
create function theirs.fires() returns trigger language plpgsql as
    $$ begin raise notice 'ran as %', current_user; return case tg_op when 'DELETE' then old else new end; end $$;
create function theirs.asks(anyelement) returns boolean language plpgsql as
    $$ begin raise notice 'ran as %', current_user; return true; end $$;
create function theirs.number(bigint) returns bigint language plpgsql immutable as
    $$ begin raise notice 'ran as %', current_user; return $1; end $$;
create table theirs.child (id bigint primary key);
"""
HOOKS = (
    *(
        f"create trigger a_{when}_{event} {when.replace('_', ' ')} {event} on {{0}} for each {level}"
        " execute function theirs.fires()"
        for when in ("before", "after", "instead_of")
        for event in ("insert", "update", "delete", "truncate")
        for level in ("row", "statement")
    ),
    (
        "create constraint trigger a_late after insert on {0} deferrable initially deferred for each row"
        " execute function theirs.fires()"
    ),
    (
        "create trigger a_when before insert on {0} for each row when (theirs.asks(new.msg_id))"
        " execute function pgmq.notify_queue_listeners()"
    ),
    (
        "create trigger a_late_when after insert on {0} for each row when (theirs.asks(new.msg_id))"
        " execute function tsvector_update_trigger('a', 'pg_catalog.simple', 'b')"
    ),
    "alter table theirs.child add foreign key (id) references {0} (msg_id) on delete cascade",
    "create rule a_rule as on insert to {0} do also select theirs.asks(1)",
    "create policy a_policy on {0} using (theirs.asks(1)); alter table {0} enable row level security",
    "create table theirs.heir () inherits ({0})",
    "alter table theirs.child inherit {0}",
    "create index on {0} (theirs.number(msg_id))",
    "create statistics theirs.a_kind on (theirs.number(msg_id)), read_ct from {0}",
    "alter table {0} alter vt set default theirs.number(1)::text::timestamptz",
    "alter table {0} add check (theirs.asks(msg_id))",
    "alter table {0} owner to current_user",
    "create publication theirs for table {0}",
    "create or replace view {0} as select theirs.number(1)",
    "drop table {0} cascade",
    "drop view {0} cascade",
    "create view theirs.shown as select * from {0}",
    "create table theirs.typed (kept {0})",
)


@pytest.fixture
def granting(queues: Connection) -> Connection:
    """A session of the owner; the role has all privileges on what is granted of `jobs`, and schema `theirs`."""
    queues.execute(
        "select pgmq.archive(%s, pgmq.send(%s, '\"kept\"')) from unnest(array[1])", ["jobs", "jobs"]
    )
    queues.execute(
        "select pgmq.send('others', '\"canary\"'), pgmq.archive('others', pgmq.send('others', '\"canary\"'))"
    )
    queues.execute("select spanmq.receiver_open('jobs')")
    queues.execute(f"create role {ABLE}; grant select on runs to {ABLE}".encode())
    for queue in ("jobs", "others"):
        give(queues, "manage", queue, ABLE)
    queues.execute(
        f"create schema theirs authorization {ROLE}; grant usage on schema theirs to public".encode()
    )
    for schema_name in SCHEMAS:
        queues.execute(f"grant usage on schema {schema_name} to {ROLE}".encode())
    grant_all(queues)
    as_role(queues, CODE)
    return queues


def granted(connection: Connection) -> list[str]:
    number = one(connection, "select queue_id from spanmq_core.queue where name = 'jobs'")
    return [relation.format(jobs=number) for relation in GRANTED]


def grant_all(connection: Connection) -> None:
    for relation in granted(connection):
        connection.execute(f"grant all on {relation} to {ROLE} with grant option".encode())


def as_role(connection: Connection, statements: str) -> bool:
    """Run statements of the role; return whether it may."""
    try:
        with connection.transaction():
            connection.execute(f"set local role {ROLE}".encode())
            connection.execute(statements.encode())
            connection.execute("reset role")
    except psycopg.Error:
        return False
    return True


def hang(connection: Connection) -> set[str]:
    """Attach code of the role to every relation where its rights allow that; return the hooks with their relations."""
    return {
        f"{hook.split()[1]} on {relation}"
        for relation in granted(connection)
        for hook in HOOKS
        if as_role(connection, hook.format(relation))
    }


def ends(connection: Connection, queue: str) -> dict[str, str]:
    """Return how calls of another role and of the owner about a queue end."""
    made = {call: outcome(connection, call, ABLE) for _, call in calls(connection, queue)}
    own = (
        f"select pgmq.drop_queue('{queue}')",
        "select pgmq.create('more'); select pgmq.drop_queue('more')",
        f"select pgmq.create_partitioned('more', '10', '1'); select pgmq.bind_topic('#', '{queue}')",
        "select spanmq.maintain()",
    )
    return made | {call: outcome(connection, call, "none") for call in own}


@pytest.fixture
def ran(granting: Connection) -> list[str]:
    """What the code of the role notes: as which role it runs."""
    noted: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if (notice.message_primary or "").startswith("ran as"):
            noted.append(notice.message_primary or "")

    granting.add_notice_handler(note)
    return noted


@pytest.mark.parametrize("follows", [False, pytest.param(True, marks=deep)])
def test_no_privilege_runs_code_with_the_rights_of_others(
    granting: Connection, ran: list[str], follows: bool
) -> None:
    """Nor does it change how any call about another queue ends: before maintain() has revoked it."""
    if follows:
        granting.execute("insert into spanmq_core.following default values")
    granting.execute("select pgmq.convert_archive_partitioned('jobs', '1', '1')")
    before = ends(granting, "others")
    assert hang(granting) >= {
        "trigger on pgmq.q_jobs",
        "trigger on pgmq.a_jobs",
        "constraint on pgmq.a_jobs",
        "table on pgmq.a_jobs",
    }
    # Theirs runs where they write themselves: the test sees it.
    as_role(granting, "insert into pgmq.a_jobs (msg_id, vt) values (1000, now())")
    assert set(ran) == {f"ran as {ROLE}"}
    ran.clear()
    assert ends(granting, "others") == before
    of_jobs = ends(granting, "jobs")
    assert ran == []
    assert {end for call, end in of_jobs.items() if call.startswith("select * from pgmq.archive(")} == {
        "42501"
    }
    assert of_jobs["select pgmq.drop_queue('jobs')"] == "ok"
    named = " ".join(
        difference.name for difference in schema.verify(granting) if difference.problem == "code"
    )
    assert {relation for relation in granted(granting) if relation in named} >= {
        "pgmq.a_jobs",
        "pgmq.q_jobs",
        "pgmq.meta",
    }


def grant_columns(connection: Connection) -> None:
    """Grant all that there is on columns, in place of what the role has on the relations."""
    for relation in granted(connection):
        connection.execute(f"revoke all on {relation} from {ROLE} cascade".encode())
        names = column(
            connection,
            "select quote_ident(attname) from pg_attribute"
            " where attrelid = %s::regclass and attnum > 0 and not attisdropped and attname <> 'last_value'",
            relation,
        )
        if "_seq" not in relation:
            privileges = (
                f"{kind} ({', '.join(names)})" for kind in ("select", "insert", "update", "references")
            )
            connection.execute(
                f"grant {', '.join(privileges)} on {relation} to {ROLE} with grant option".encode()
            )


@deep
def test_privileges_on_columns_are_as_those_on_relations(granting: Connection, ran: list[str]) -> None:
    grant_columns(granting)
    before = ends(granting, "others")
    assert hang(granting) >= {"table on pgmq.a_jobs"}
    assert ends(granting, "others") == before
    assert ends(granting, "jobs")["select pgmq.drop_queue('jobs')"] == "ok"
    assert ran == []
    assert {difference.name for difference in schema.verify(granting)} >= {
        "child_id_fkey on theirs.child",
        "pgmq.q_jobs",
        "pgmq.meta",
    }
    granting.execute("select spanmq.maintain()")
    assert [difference.name for difference in schema.verify(granting)] == ["child_id_fkey on theirs.child"]


@pytest.mark.parametrize("on", ["relations", "columns"])
def test_no_privilege_shows_or_changes_another_queue(granting: Connection, ran: list[str], on: str) -> None:
    if on == "columns":
        grant_columns(granting)
    number = one(granting, "select queue_id from spanmq_core.queue where name = 'others'")
    state = (
        "select (select string_agg(x::text, '') from pgmq.q_others x),"
        " (select string_agg(x::text, '') from pgmq.a_others x),"
        f" (select string_agg(x::text, '') from spanmq_core.queue x where queue_id = {number}),"
        " (select string_agg(x::text, '') from spanmq_core.topic_binding x where queue_name = 'others')"
    )
    before = rows(granting, state)
    assert "canary" in str(before)
    for relation in column(granting, RELATIONS):
        for statement in (
            (
                f"do $$ declare x text; begin for x in select r::text from {relation} r loop"
                " if x like '%canary%' then raise notice 'ran as reader'; end if; end loop; end $$"
            ),
            f"delete from {relation}",
            f"truncate {relation}",
            f"insert into {relation} select * from {relation}",
        ):
            as_role(granting, statement)
    assert ran == []
    for values in ("'others', '#'", "'#', 'others'"):
        as_role(granting, f"insert into pgmq.topic_bindings (queue_name, pattern) values ({values})")
    assert rows(granting, state) == before


def test_maintenance_revokes_what_is_dangerous(granting: Connection) -> None:
    granting.execute(f"grant create on schema pgmq, spanmq_core to {ROLE}".encode())
    assert [as_role(granting, hook.format("pgmq.q_jobs")) for hook in HOOKS].count(True) > 5
    granting.execute("select spanmq.maintain()")
    privileges = rows(
        granting,
        "select c.oid::regclass::text, array_agg(a.privilege_type order by a.privilege_type) from pg_class c"
        " cross join lateral aclexplode(c.relacl) a where a.grantee = %s::regrole and c.oid <> 'runs'::regclass"
        " group by 1",
        ROLE,
    )
    written = ["DELETE", "INSERT", "SELECT", "TRUNCATE", "UPDATE"]
    assert {
        name: [privilege for privilege in left if privilege != "MAINTAIN"] for name, left in privileges
    } == {
        relation: written if relation in ("pgmq.q_jobs", "pgmq.a_jobs") else ["SELECT"]
        for relation in granted(granting)
    }
    assert schema.verify(granting) == []


def test_privileges_on_columns_of_what_all_queues_share_are_revoked(granting: Connection) -> None:
    """But for the one by which every role leaves a proof of who it is."""
    proof = "select has_column_privilege(%s, 'spanmq_call.caller', 'proof', 'insert')"
    log = one(granting, "select 'spanmq_core.log_' || queue_id from spanmq_core.queue where name = 'jobs'")
    granting.execute(f"grant select (message) on {log} to {ROLE}, public".encode())
    granting.execute(f"grant update (name), references (queue_id) on spanmq_core.queue to {ROLE}".encode())
    granting.execute("grant insert, select on spanmq_call.caller to public")
    granting.execute(f"grant insert (role) on spanmq_call.caller to {ROLE}".encode())
    assert {difference.name for difference in schema.verify(granting)} >= {
        log,
        "spanmq_core.queue",
        "spanmq_call.caller",
    }
    granting.execute("select spanmq.maintain()")
    assert schema.verify(granting) == []
    assert one(granting, proof, ROLE) is True
    forge = "insert into spanmq_call.caller (proof, role) values (gen_random_uuid(), 'x')"
    assert as_role(granting, forge) is False


# Functions, schemas, default privileges, grant options.


@pytest.mark.parametrize("name", ["pgmq", "spanmq_core"])
def test_execute_on_all_functions_of_a_schema_is_no_verb(granting: Connection, name: str) -> None:
    """Programs written for PGMQ grant it on schema pgmq."""
    for relation in granted(granting):
        granting.execute(f"revoke all on {relation} from {ROLE} cascade".encode())
    made = [(called, call) for queue in ("jobs", "others") for called, call in calls(granting, queue)]
    before = [outcome(granting, call) for _, call in made]
    assert sum(is_refusal(called, end) for (called, _), end in zip(made, before, strict=True)) > 200
    granting.execute(f"grant execute on all routines in schema {name} to {ROLE} with grant option".encode())
    assert [outcome(granting, call) for _, call in made] == before


# Types that an overload may have in place of ours, so that a call with an implicit cast would prefer it.
OTHER_TYPES = {
    "text": ("name", "character varying"),
    "name": ("text",),
    "bigint": ("integer", "numeric"),
    "integer": ("smallint", "bigint"),
    "double precision": ("real", "numeric"),
    "jsonb": ("json",),
    "regclass": ("oid",),
    "timestamp with time zone": ("timestamp", "date"),
    "bigint[]": ("integer[]",),
    "integer[]": ("bigint[]",),
    "text[]": ("name[]",),
}
SIGNATURES = """
    select n.nspname, p.proname,
        array(select format_type(t, null) from unnest(p.proargtypes) with ordinality u (t, place) order by place),
        pg_get_function_result(p.oid), p.proretset or p.prorettype = 'void'::regtype
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where n.nspname in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core') and p.prokind = 'f'
      and p.prorettype <> 'trigger'::regtype and p.proname !~ '_[0-9]+$'
"""


def overload(connection: Connection, only: str = "") -> None:
    """Let the role put functions beside ours, each with another type of an argument; with `only`, of these names."""
    for place, name, types, result, has_no_value in rows(connection, SIGNATURES):
        if only and f"{place}.{name}" != only:
            continue
        for i, kind in enumerate(types):
            for other in OTHER_TYPES.get(kind, ()):
                arguments = ", ".join([*types[:i], other, *types[i + 1 :]])
                as_role(
                    connection,
                    f"create function {place}.{name}({arguments}) returns {result} language plpgsql as $$ begin"
                    " raise notice 'ran as %', current_user; return"
                    + (";" if has_no_value else " null;")
                    + " end $$",
                )


@deep
def test_functions_of_a_role_that_may_create_never_run_as_the_owner(
    granting: Connection, ran: list[str]
) -> None:
    """Until maintain() revokes CREATE, which it does within a second; then they go."""
    made = [(call, role) for _, call in calls(granting, "others") for role in (ABLE, "none")]
    granting.execute(f"grant create on schema {', '.join(SCHEMAS)} to {ROLE}".encode())
    overload(granting)
    for call, role in made:
        outcome(granting, call, role)
    # A caller's own call may find theirs first, and runs it with the caller's rights: not with those of the owner.
    assert {notice for notice in ran if ABLE not in notice} == set()


def test_functions_of_a_role_that_might_create_are_dropped_or_named(granting: Connection) -> None:
    granting.execute(f"grant create on schema {', '.join(SCHEMAS)} to {ROLE}".encode())
    made = [call for _, call in calls(granting, "others")]
    before = [outcome(granting, call, ABLE) for call in made]
    for name in ("spanmq_core.role_may", "spanmq_call.send", "spanmq.pause", "pgmq.metrics"):
        overload(granting, name)
    granting.execute("select spanmq.maintain()")
    assert [outcome(granting, call, ABLE) for call in made] == before
    differences = schema.verify(granting)
    assert {(difference.kind, difference.problem) for difference in differences} == {("function", "owner")}
    assert {difference.name.partition("(")[0] for difference in differences} == {"pgmq.metrics"}


def test_default_privileges_open_nothing_of_a_new_queue(granting: Connection) -> None:
    for kind in ("tables", "sequences", "functions", "types", "schemas"):
        for where in ("", *(f" in schema {schema_name}" for schema_name in SCHEMAS if kind != "schemas")):
            granting.execute(
                f"alter default privileges{where} grant all on {kind} to {ROLE} with grant option".encode()
            )
    oldest = one(granting, "select max(oid::bigint) from pg_class")
    for statement in (
        "select pgmq.create('later'), pgmq.create_partitioned('parts', '10', '100'), pgmq.create_unlogged('fast')",
        "select pgmq.send('later', '1'), pgmq.archive('later', 1), spanmq.receiver_open('later')",
        "select pgmq.enable_notify_insert('later'), spanmq.create_subscription('copy', 'later')",
        "select spanmq.set_policy('later', '{\"rate_limit\": 5}'), spanmq.set_policy('fast', '{\"max_backlog\": 100}')",
        f"select spanmq.grant_queue('{ABLE}', 'later', 'manage')",
        "select pgmq.convert_archive_partitioned('later', '1', '1')",
        "select pgmq.drop_queue('parts')",
        "select spanmq.maintain()",
    ):
        as_owner(granting, statement)
    privileges = rows(
        granting,
        "select c.relname, a.privilege_type from pg_class c cross join lateral aclexplode(c.relacl) a"
        " where a.grantee = %s::regrole and c.oid > %s"
        " and c.relnamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')",
        ROLE,
        oldest,
    )
    assert {privilege for _, privilege in privileges} == {"SELECT"}
    assert {name for name, _ in privileges} == {
        *(f"{kind}_{queue}" for queue in ("later", "fast", "copy") for kind in ("q", "a")),
        "q_later_msg_id_seq",
        "q_fast_msg_id_seq",
    }
    for call in ("pgmq.send('later', '1')", "pgmq.drop_queue('later')", "spanmq.list_grants()"):
        assert outcome(granting, f"select {call}") in ("42501", "42P01")
    assert [
        row for row in rows(granting, "select role, verb from spanmq.list_grants()") if row[0] == ROLE
    ] == []
    assert schema.verify(granting) == []


def as_owner(connection: Connection, statement: str) -> None:
    with connection.transaction():
        connection.execute(statement.encode())


@pytest.mark.parametrize("everywhere", [False, True])
def test_verb_that_a_role_passed_on_goes_with_its_own(granting: Connection, everywhere: bool) -> None:
    """Only an owner's own GRANT of functions has a grant option; a grant of a verb has none."""
    give(granting, "receive", "all" if everywhere else "jobs", ROLE)
    number = one(granting, "select queue_id from spanmq_core.queue where name = 'jobs'")
    function = "pop(text, integer)" if everywhere else f"pop_{number}(integer)"
    may = "may_receive()" if everywhere else f"may_receive_{number}()"
    granting.execute("create role spanmq_test_given")
    granting.execute(
        f"grant execute on function spanmq_call.{function}, spanmq_call.{may} to {ROLE}"
        " with grant option".encode()
    )
    assert as_role(
        granting,
        f"grant execute on function spanmq_call.{function}, spanmq_call.{may} to spanmq_test_given, public",
    )
    assert outcome(granting, "select * from pgmq.pop('jobs')", "spanmq_test_given") == "ok"
    if everywhere:
        granting.execute("select spanmq.revoke_all(%s, 'receive')", [ROLE])
    else:
        assert one(granting, "select spanmq.revoke_queue(%s, 'jobs', 'receive')", ROLE) is True
    for role in ("spanmq_test_given", ROLE):
        assert outcome(granting, "select * from pgmq.pop('jobs')", role) in ("42501", "42P01")


# Locks.


@pytest.fixture
def sessions(database: str) -> Iterator[tuple[Connection, Connection]]:
    """A session of the owner, and one of a role with all privileges on what is granted of `jobs`."""
    with (
        psycopg.connect(database, autocommit=True) as owner,
        own_role(owner) as role,
        psycopg.connect(database) as theirs,
    ):
        owner.execute("select pgmq.create('jobs'), pgmq.create('others'), pgmq.send('others', '1')")
        owner.execute("select pgmq.send('others', '1') from generate_series(1, 5)")
        owner.execute("select spanmq.receiver_open('jobs')")
        owner.execute("set lock_timeout = '100ms'")
        for schema_name in SCHEMAS:
            owner.execute(f"grant usage on schema {schema_name} to {role}".encode())
        theirs.execute(f"set role {role}".encode())
        yield owner, theirs
        theirs.rollback()


PRIVILEGES = ("select", "insert", "update", "delete", "truncate", "references", "trigger", "maintain", "all")
WORK = (
    "select pgmq.send('others', '1')",
    "select pgmq.send_topic('a', '1')",
    "select pgmq.bind_topic('a', 'others')",
    "select pgmq.unbind_topic('a', 'others')",
    "select count(*) from pgmq.read('others', 0, 1)",
    "select pgmq.archive('others', 1)",
    "select count(*) from spanmq.receive('others', 1)",
    "select pgmq.delete('others', 2)",
    "select count(*) from pgmq.q_others",
    "delete from pgmq.q_others where msg_id = 3",
    "select pgmq.list_queues(), pgmq.metrics_all(), spanmq.health()",
    "select spanmq.set_policy('others', '{\"max_attempts\": 3}')",
    "select pgmq.enable_notify_insert('others')",
    "select pgmq.create('more')",
    "select spanmq.grant_queue('public', 'more', 'look')",
    "select pgmq.drop_queue('more')",
    "select spanmq.maintain()",
    "select pgmq.send('jobs', '1')",
    "select count(*) from pgmq.read('jobs', 0, 1)",
    "select pgmq.delete('jobs', 1)",
)


@pytest.mark.parametrize(
    "privilege",
    [privilege if privilege == "all" else pytest.param(privilege, marks=deep) for privilege in PRIVILEGES],
)
def test_no_privilege_locks_what_other_queues_need(
    sessions: tuple[Connection, Connection], privilege: str
) -> None:
    owner, theirs = sessions
    if privilege == "maintain" and owner.info.server_version < 170000:
        pytest.skip("PostgreSQL 17 has MAINTAIN")
    role = one(theirs, "select current_user")
    for relation in granted(owner):
        if "_seq" not in relation or privilege in ("select", "update", "all"):
            owner.execute(f"grant {privilege} on {relation} to {role}".encode())
    held = []
    for relation in column(theirs, RELATIONS.replace("'r', 'p', 'v', 'S'", "'r', 'p', 'v'")):
        for mode in MODES:
            try:
                with theirs.transaction():
                    theirs.execute(f"lock table {relation} in {mode} mode nowait".encode())
            except psycopg.Error:
                continue
            held.append((relation, mode))
            break
    # Nor does MAINTAIN do so by a command.
    for relation in column(theirs, RELATIONS.replace("'r', 'p', 'v', 'S'", "'r', 'p'")):
        for command in ("reindex table {}", "cluster {}", "refresh materialized view {}"):
            if relation != "pgmq.a_jobs":
                with pytest.raises(psycopg.Error), theirs.transaction():
                    theirs.execute(command.format(relation).encode())
    may_lock = privilege not in ("references", "trigger")
    assert ("pgmq.a_jobs" in dict(held)) is may_lock
    # What a view shows is locked only as its readers lock it.
    assert {mode for relation, mode in held if relation != "pgmq.a_jobs"} <= {"access share"}
    # Nor does LOCK wait for, and so keep others from, what is not the role's.
    with owner.transaction():
        owner.execute("select pgmq.send('others', '1')")
        for relation in ("pgmq.q_jobs", "pgmq.meta", "pgmq.topic_bindings", "pgmq.notify_insert_throttle"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), theirs.transaction():
                theirs.execute(f"lock table {relation} in access exclusive mode nowait".encode())
    for statement in WORK:
        owner.execute(statement.encode())
