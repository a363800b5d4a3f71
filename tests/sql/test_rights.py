"""Who may call what: each right lets one do its part, and nothing that a caller brings along gives more."""

from typing import Any

import psycopg
import psycopg.types.json
import pytest
from psycopg import Connection, sql
from tests.schemas import qualified

ROLE = "spanmq_test_caller"
# Functions of schema spanmq that views call with the rights of who looks.
PUBLIC_IN_SPANMQ = {"last_notified_at"}
# Functions of schema pgmq that act on no queue, and those that only look at their arguments.
FREE = {
    "acquire_queue_lock": "locks, and looks at nothing",
    "create_fifo_indexes_all": "does nothing",
    "detach_archive": "does nothing",
    "disable_notify_insert": "of a queue that is there it wants the right",
    "enter_shards": "of a logical queue; with a group it wants the right to send",
    "format_table_name": "looks at its argument",
    "glance": "tells of queues that one may look into",
    "get_shards": "of a logical queue: names only",
    "health": "tells of queues that one may look into",
    "latest_statistics": "tells of queues that one may look into",
    "list_notify_insert_throttles": "tells of queues on which one has a right",
    "list_queues": "tells of queues on which one has a right",
    "list_topic_bindings": "tells of queues on which one has a right",
    "metrics_all": "tells of queues that one may look into",
    "notify_queue_listeners": "a trigger's",
    "version": "a constant",
    "sum_statistics": "tells of queues that one may look into",
    "test_routing": "tells of queues on which one has a right",
    "validate_queue_name": "looks at its argument",
    "validate_routing_key": "looks at its argument",
    "validate_topic_pattern": "looks at its argument",
}
# A missing right; and of a queue on which one has none at all: that it is not there.
# These take the name of a logical queue, which is no table's: any text will do.
REFUSALS = {"42501", "42P01"}
LOGICAL = {"set_shards", "forget_shards"}
# What each right on a queue's view lets one do.
ALLOWED = {
    "insert": {"send", "send_batch", "send_messages"},
    "update": {
        "read",
        "read_grouped",
        "read_grouped_head",
        "read_grouped_rr",
        "receive",
        "set_vt",
        "extend",
        "nack",
        "release",
    },
    "delete": {"delete", "archive", "ack", "reject", "cancel", "pop"},
    "select": {
        "metrics",
        "peek",
        "storage",
        "statistics",
        "status",
        "dead_letters_of",
        "failures",
        "failures_between",
        "dead_letters_between",
        "list_groups",
        "list_leases",
        "list_segments",
        "get_policy",
    },
    "truncate": {"purge_queue"},
}
ALL = set().union(*ALLOWED.values())
ARGUMENTS = {
    "bigint": "1",
    "integer": "1",
    "double precision": "1",
    "boolean": "false",
    "text": "'x'",
    "jsonb": "'{}'",
    "jsonb[]": "array['{}']::jsonb[]",
    "bigint[]": "array[1]::bigint[]",
    "text[]": "array['x']",
    "timestamp with time zone": "now()",
    "interval": "interval '1 hour'",
}


@pytest.fixture
def caller(connection: Connection[Any]) -> Connection[Any]:
    """A session that may create what it likes, but has no right on the queue `jobs`, with a message in it."""
    connection.execute("select pgmq.create('jobs'), pgmq.send('jobs', '{\"a\": 1}')")
    connection.execute(f"create role {ROLE}".encode())
    connection.execute(f"grant usage on schema pgmq to {ROLE}".encode())
    connection.execute(f"create schema theirs authorization {ROLE}".encode())
    return connection


def calls(connection: Connection[Any]) -> dict[str, list[str]]:
    """Give calls of all public functions that have a queue for their first argument, by name."""
    found: dict[str, list[str]] = {}
    rows = connection.execute(
        "select proname, proargnames[1], array(select format_type(t, null)"
        "   from unnest(proargtypes) with ordinality u (t, place) order by place), pronargs - pronargdefaults"
        " from pg_proc where pronamespace = 'pgmq'::regnamespace and prokind = 'f' order by oid"
    ).fetchall()
    for name, first, types, required in rows:
        if (
            first in ("queue", "queue_name", "table_name")
            and name not in FREE
            and not name.endswith("_with_poll")
        ):
            given = [
                "'jobs'",
                *(ARGUMENTS.get(each, f"null::{each}") for each in types[1 : max(required, 1)]),
            ]
            given = [f"{value}::{kind}" for value, kind in zip(given, types[: len(given)], strict=True)]
            found.setdefault(name, []).append(f"select * from {qualified(name)}({', '.join(given)})")
    return found


def outcome(connection: Connection[Any], statement: str) -> str:
    """Tell how a call as the role ends: an SQLSTATE, or ok. What it did is rolled back."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"set local role {ROLE}".encode())
            connection.execute(statement.encode())
    except psycopg.Error as error:
        return error.sqlstate or "unknown"
    return "ok"


def allowed(connection: Connection[Any]) -> set[str]:
    return {
        name
        for name, statements in calls(connection).items()
        if any(outcome(connection, statement) not in REFUSALS for statement in statements)
    }


# Keepers: they look at every function there is.


def test_functions_with_their_owner_s_rights_have_a_safe_search_path(connection: Connection[Any]) -> None:
    rows = connection.execute(
        "select oid::regprocedure::text from pg_proc"
        " where pronamespace in ('pgmq'::regnamespace, 'spanmq'::regnamespace, 'spanmq_core'::regnamespace)"
        " and prosecdef"
        " and not coalesce('search_path=pg_catalog, pg_temp' = any (proconfig), false)"
    ).fetchall()
    assert rows == []


def test_functions_of_the_storage_are_nobody_s(connection: Connection[Any]) -> None:
    rows = connection.execute(
        "select proname from pg_proc where pronamespace = 'spanmq_core'::regnamespace"
        " and has_function_privilege('public', oid, 'execute')"
    ).fetchall()
    assert {name for (name,) in rows} == PUBLIC_IN_SPANMQ
    assert connection.execute("select has_schema_privilege('public', 'spanmq', 'usage')").fetchone() == (
        False,
    )


def test_tables_of_the_storage_are_nobody_s(connection: Connection[Any]) -> None:
    rows = connection.execute(
        "select relname from pg_class where relnamespace = 'spanmq_core'::regnamespace"
        " and relkind in ('r', 'p', 'v')"
        " and has_table_privilege('public', oid, 'select, insert, update, delete, truncate')"
    ).fetchall()
    assert rows == []


def test_every_public_function_has_its_owner_s_rights_or_needs_none(connection: Connection[Any]) -> None:
    rows = connection.execute(
        "select distinct proname from pg_proc where pronamespace = 'pgmq'::regnamespace and not prosecdef"
    ).fetchall()
    needing = {"drop_queue", "send_batch_topic", "send_topic"}
    assert {name for (name,) in rows} - FREE.keys() - needing == set()


# Roles.


def test_a_role_without_rights_can_do_nothing_to_a_queue(caller: Connection[Any]) -> None:
    # Of a queue that it does not see, it drops nothing and is told so.
    assert allowed(caller) == {"drop_queue"}
    assert outcome(caller, "select 1 / (pgmq.drop_queue('jobs'))::int") == "22012"
    assert calls(caller).keys() >= ALL


@pytest.mark.parametrize("right", ALLOWED)
def test_a_right_lets_one_do_its_part_and_no_more(caller: Connection[Any], right: str) -> None:
    caller.execute(f"grant {right} on pgmq.q_jobs to {ROLE}".encode())
    found = allowed(caller)
    assert found & ALL == ALLOWED[right]


def test_no_function_that_is_new_is_open_to_two_rights(caller: Connection[Any]) -> None:
    opened: dict[str, list[str]] = {}
    for right in ALLOWED:
        caller.execute(f"grant {right} on pgmq.q_jobs to {ROLE}".encode())
        for name in allowed(caller):
            opened.setdefault(name, []).append(right)
        caller.execute(f"revoke {right} on pgmq.q_jobs from {ROLE}".encode())
    assert {name: rights for name, rights in opened.items() if len(rights) > 1} == {}


def test_rights_of_the_one_who_called_count_not_those_of_a_definer(caller: Connection[Any]) -> None:
    caller.execute(
        "create function theirs.lend() returns setof pgmq.message_record language sql security definer"
        " as $$ select * from pgmq.read('jobs', 30, 1) $$"
    )
    caller.execute(f"grant execute on function theirs.lend() to {ROLE}".encode())
    assert outcome(caller, "select * from theirs.lend()") == "42P01"


# What a caller brings along.

SHADOWS = """
do $$
declare
    it record;
begin
    -- A temporary table for each of ours, which says that everybody may do everything.
    for it in select relname from pg_class
              where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace)
              and relkind = 'r' and relname !~ '[0-9]' loop
        execute format('create temp table %I as select 1 as queue_id, ''jobs''::text as name', it.relname);
    end loop;
end $$;
create type pg_temp.leased_message as (msg_id text);
create domain pg_temp.regclass as text;
create function pg_temp.has_table_privilege(name, regclass, text) returns boolean
    language sql as 'select true';
create function theirs.has_table_privilege(name, regclass, text) returns boolean
    language sql as 'select true';
create function theirs.lower(text) returns text language sql as 'select ''others''';
create function theirs.current_setting(text) returns text language sql as 'select ''postgres''';
create function theirs.find_queue(text, text) returns int language sql as 'select 1';
create function theirs.always(text, text) returns boolean language sql as 'select true';
create operator theirs.= (leftarg = text, rightarg = text, function = theirs.always);
create operator theirs.~ (leftarg = text, rightarg = text, function = theirs.always);
create operator pg_temp.= (leftarg = text, rightarg = text, function = theirs.always);
set local search_path = theirs, pg_temp, pg_catalog, public;
"""


def test_objects_of_the_caller_shadow_nothing(caller: Connection[Any]) -> None:
    caller.execute(f"grant insert on pgmq.q_jobs to {ROLE}".encode())
    caller.execute(f"grant temporary on database {caller.info.dbname} to {ROLE}".encode())
    caller.execute(f"set local role {ROLE}".encode())
    caller.execute(SHADOWS.encode())
    # In the role's own eyes they do shadow.
    assert caller.execute("select lower('jobs'), 'a'::text = 'b'::text").fetchone() == ("others", True)
    found = {
        name
        for name, statements in calls(caller).items()
        if any(outcome(caller, statement) not in REFUSALS for statement in statements)
    }
    assert found & ALL == ALLOWED["insert"]
    caller.execute("select pgmq.send('jobs', '2')")
    caller.execute("reset role")
    caller.execute("set local search_path = public")
    assert caller.execute("select message from pgmq.read('jobs', 0, 10)").fetchall() == [({"a": 1},), (2,)]


@pytest.mark.parametrize(
    "setting",
    [
        "set local session_replication_role = replica",
        "set local role none",
        "select set_config('role', 'none', true)",
    ],
)
def test_settings_give_no_rights(caller: Connection[Any], setting: str) -> None:
    caller.execute(f"alter role {ROLE} login".encode())
    with caller.transaction(force_rollback=True):
        caller.execute(f"set local session authorization {ROLE}".encode())
        try:
            with caller.transaction():
                caller.execute(setting.encode())
        except psycopg.errors.InsufficientPrivilege:
            pass
        with pytest.raises(psycopg.Error) as raised, caller.transaction():
            caller.execute("select * from pgmq.read('jobs', 30, 1)")
        assert raised.value.sqlstate == "42P01"


NAMES = ['we"ird', "%s%I%L%1$", "a b", "back\\slash", "ж", ") or true", "x/*", "{}", "null", "select"]
REFUSED = ["x'; drop table spanmq_core.held", "x;y", "x--y", "$1", "a'b"]


@pytest.mark.parametrize("name", [each.replace("$", "") for each in NAMES])
def test_odd_names_are_names(connection: Connection[Any], name: str) -> None:
    one, args = "select pgmq.{}", {"name": name, "body": '{"a": "\'; drop table x; --"}'}
    connection.execute("select pgmq.create(%(name)s), pgmq.enable_notify_insert(%(name)s)", args)
    connection.execute("select pgmq.send_batch(%(name)s, array_fill(%(body)s::jsonb, array[3]))", args)
    connection.execute("select pgmq.bind_topic('a.#', %(name)s), pgmq.send_topic('a.b', '1')", args)
    assert len(connection.execute("select * from spanmq.peek(%(name)s)", args).fetchall()) == 4
    leased = connection.execute("select lease_id from spanmq.receive(%(name)s, 2)", args).fetchall()
    connection.execute("select spanmq.ack(%(name)s, %(lease)s, array[1])", {**args, "lease": leased[0][0]})
    for verb in (
        "archive(%(name)s, 2)",
        "metrics(%(name)s)",
        "purge_queue(%(name)s)",
        "drop_queue(%(name)s)",
    ):
        connection.execute(sql.SQL(one).format(sql.SQL(verb)), args)
    assert connection.execute("select count(*) from spanmq_core.queue").fetchone() == (0,)


@pytest.mark.parametrize("name", REFUSED)
def test_sql_in_names_is_refused_by_every_function(connection: Connection[Any], name: str) -> None:
    connection.execute("select pgmq.create('jobs')")
    for function, statements in calls(connection).items():
        for statement in statements if function not in LOGICAL else []:
            quoted = sql.Literal(name).as_string(connection)
            with pytest.raises(psycopg.Error) as raised, connection.transaction():
                connection.execute(statement.replace("'jobs'", quoted, 1).encode())
            assert raised.value.sqlstate in ("MQ001", "42P01"), statement
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        connection.execute("select pgmq.create(%s)", [name])
    assert raised.value.sqlstate == "MQ001"


@pytest.mark.parametrize(
    "text", ["'; drop table spanmq_core.held; --", "$1", "%s", '"', "\\", "a' or 'a'='a"]
)
def test_sql_in_what_else_is_given_is_text(connection: Connection[Any], text: str) -> None:
    connection.execute("select pgmq.create('jobs')")
    group = psycopg.types.json.Jsonb({"x-pgmq-group": text})
    connection.execute("select pgmq.send('jobs', to_jsonb(%s::text), %s)", [text, group])
    match = psycopg.types.json.Jsonb(text)
    found = connection.execute("select msg_id from pgmq.read('jobs', 0, 1, %s)", [match]).fetchall()
    assert found == [(1,)]
    grouped = connection.execute("select message from pgmq.read_grouped('jobs', 30, 1)").fetchall()
    assert grouped == [(text,)]
    with pytest.raises(psycopg.Error) as raised, connection.transaction():
        connection.execute("select pgmq.bind_topic(%s, 'jobs')", [text])
    assert raised.value.sqlstate.startswith("MQ") if raised.value.sqlstate else False


# Whoever may make queues may make functions beside ours. One that takes an argument as it comes, where ours
# needs a cast, is the nearer one: here by what ours takes, what might come.
NEARER = [
    {"text": "character varying"},
    {"bigint": "integer"},
    {"double precision": "integer"},
    {"text": "character varying", "bigint": "integer", "double precision": "integer"},
    {"text[]": "character varying[]", "bigint[]": "integer[]"},
]


def test_functions_of_who_may_make_queues_are_never_the_nearer_ones(caller: Connection[Any]) -> None:
    caller.execute(f"grant create on schema pgmq to {ROLE}".encode())
    caller.execute(f"select spanmq.grant_queue('{ROLE}', 'jobs', 'manage')".encode())
    ours = {**calls(caller), "create": ["select pgmq.create('others'::text)"]}
    rows = caller.execute(
        "select proname, array(select format_type(t, null)"
        "   from unnest(proargtypes) with ordinality u (t, place) order by place)"
        " from pg_proc where pronamespace = 'pgmq'::regnamespace and prokind = 'f'"
    ).fetchall()
    taken = {(name, tuple(types)) for name, types in rows}
    caller.execute(f"set local role {ROLE}".encode())
    for name, types in sorted(taken):
        for nearer in NEARER:
            theirs = (name, tuple(nearer.get(each, each) for each in types))
            if theirs not in taken:
                taken.add(theirs)
                caller.execute(
                    f"create function {qualified(name)}({', '.join(theirs[1])}) returns void language plpgsql"
                    " as $$ begin raise exception 'theirs' using errcode = 'THEIR'; end $$".encode()
                )
    caller.execute("reset role")
    outcomes = {name: {outcome(caller, each) for each in statements} for name, statements in ours.items()}
    assert {name for name, found in outcomes.items() if "THEIR" in found} == set()
