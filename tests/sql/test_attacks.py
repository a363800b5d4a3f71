"""Attacks of a role that has rights on one queue, and may make what it likes in a schema of its own."""

import psycopg
import pytest
from psycopg import sql
from tests.sql.queue import Connection, column, one, rows, sqlstate_of
from tests.sql.rights import RELATIONS, ROLE, calls, give, needed, outcome, outcomes

# What a role without rights wants, in code that another role's session runs for it.
WISHES = [
    "select pgmq.read('others', 0, 1)",
    "select pgmq.send('others', '1')",
    "select pgmq.drop_queue('others')",
    "select spanmq.grant_queue('spanmq_test_caller', 'others', 'manage')",
    "select spanmq.grant_all('spanmq_test_caller', 'admin')",
    "select spanmq.create_token('evil', repeat('0', 64), array['*'], array['manage'])",
    "select pgmq.create('made')",
    "select spanmq.maintain()",
    "select count(*) from spanmq_core.unsettled",
    "select count(*) from pgmq.q_others",
]
REFUSED = {"42501", "42P01", "0A000"}


@pytest.fixture
def caller(queues: Connection) -> Connection:
    """A session of a superuser; the role may do all with `jobs`, owns schema `theirs`, and may make schemas."""
    give(queues, "manage", "jobs")
    queues.execute(f"grant create, temporary on database {queues.info.dbname} to {ROLE}".encode())
    queues.execute(f"create schema theirs authorization {ROLE}".encode())
    return queues


def as_role(connection: Connection, statements: str) -> None:
    connection.execute(f"set local role {ROLE}".encode())
    connection.execute(statements.encode())
    connection.execute("reset role")


# Code of theirs in a session of somebody with more rights.

CODE = """
create table theirs.ends (place text, wish text, state text);
create function theirs.try() returns void language plpgsql as $$
declare
    wish text;
begin
    foreach wish in array {}::text[] loop
        begin
            execute wish;
            insert into theirs.ends values (current_user, wish, 'ok');
        exception when others then
            insert into theirs.ends values (current_user, wish, sqlstate);
        end;
    end loop;
end $$;
create function theirs.tries(int) returns int language plpgsql immutable as
    'begin perform theirs.try(); return $1; end';
create function theirs.fires() returns trigger language plpgsql as 'begin perform theirs.try(); return null; end';
create function theirs.lends() returns int language plpgsql security definer as 'begin return theirs.tries(1); end';
create table theirs.things (id int);
"""
INDEX = "create index on theirs.things (theirs.tries(id));"
ROWS = "insert into theirs.things select generate_series(1, 500);"


@pytest.mark.parametrize(
    ("prepared", "run"),
    [
        (INDEX + ROWS, "analyze theirs.things"),
        (INDEX + ROWS, "reindex table theirs.things"),
        (ROWS, "create index on theirs.things (theirs.tries(id))"),
        (
            "create materialized view theirs.seen as select theirs.tries(1) with no data;",
            "refresh materialized view theirs.seen",
        ),
        ("", "select theirs.lends()"),
        (
            "create view theirs.shown with (security_invoker = off) as select theirs.lends();",
            "select * from theirs.shown",
        ),
    ],
)
def test_code_that_runs_as_its_owner_has_its_owner_s_rights(
    caller: Connection, prepared: str, run: str
) -> None:
    as_role(caller, CODE.format(sql.Literal(WISHES).as_string(caller)) + prepared)
    caller.execute("truncate theirs.ends")
    # Before: what the session checks once for a transaction, it has checked for a superuser.
    for wish in WISHES:
        outcome(caller, wish, "none")
    caller.execute(run.encode())
    ends = rows(caller, "select distinct place, wish, state from theirs.ends")
    # What drops a queue that does not exist returns false.
    assert {wish for place, wish, state in ends if state not in REFUSED} <= {WISHES[2]}
    assert {place for place, _, _ in ends} == {ROLE}
    assert {wish for _, wish, _ in ends} == set(WISHES)
    assert one(caller, "select count(*) from spanmq_core.queue where name = 'others'") == 1


def test_cascade_from_an_archive_runs_as_the_owner_of_the_table(caller: Connection) -> None:
    caller.execute(f"grant references on pgmq.a_jobs to {ROLE}".encode())
    caller.execute("select pgmq.archive('jobs', 1)")
    as_role(
        caller,
        CODE.format(sql.Literal(WISHES).as_string(caller))
        + "create table theirs.held (id bigint references pgmq.a_jobs on delete cascade);"
        " insert into theirs.held values (1);"
        " create trigger fires before delete on theirs.held for each row execute function theirs.fires()",
    )
    caller.execute("delete from pgmq.a_jobs")
    ends = rows(caller, "select place, wish, state from theirs.ends")
    assert {place for place, _, _ in ends} == {ROLE}
    assert {wish for _, wish, state in ends if state not in REFUSED} <= {WISHES[2]}


def test_no_function_asks_who_connected(connection: Connection) -> None:
    asking = column(
        connection,
        "select oid::regprocedure::text from pg_proc where pronamespace::regnamespace::text"
        " in ('pgmq', 'spanmq', 'spanmq_call', 'spanmq_core')"
        " and prosrc ~* 'session_user|system_user|current_setting[(]''role'",
    )
    assert asking == []


def test_schedule_is_made_by_the_role_that_calls(caller: Connection) -> None:
    """And not by another one that would still have the right to send after theirs was revoked."""
    number = one(caller, "select queue_id from spanmq_core.queue where name = 'jobs'")
    caller.execute(f"set local role {ROLE}".encode())
    forged = f"spanmq_call.schedule_{number}('forged', '* * * * *', '1', 'UTC', null, false"
    assert sqlstate_of(caller, f"select {forged}, 'postgres')") == "22P02"
    assert sqlstate_of(caller, f"select {forged}, gen_random_uuid())") == "42501"
    forge = "insert into spanmq_call.caller values (gen_random_uuid(), 'postgres')"
    assert sqlstate_of(caller, forge) == "42501"
    caller.execute("select spanmq.schedule('own', 'jobs', '* * * * *', '1')")
    made_by = "select made_by from spanmq.list_schedules() where name = 'own'"
    assert one(caller, made_by) == ROLE
    caller.execute("reset role")
    assert one(caller, "select count(*) from spanmq_call.caller") == 0


def test_maker_of_queues_gets_no_archive_that_was_there_before(caller: Connection) -> None:
    caller.execute("select pgmq.archive('others', 1); alter table pgmq.a_others rename to a_kept")
    caller.execute("select spanmq.grant_create(%s)", [ROLE])
    assert outcome(caller, "select pgmq.create('kept')") == "42501"
    assert outcome(caller, "select pgmq.create('Kept')") == "42501"
    caller.execute("create role spanmq_test_able; select spanmq.grant_all('spanmq_test_able', 'manage')")
    caller.execute("select spanmq.grant_create('spanmq_test_able')")
    assert outcome(caller, "select pgmq.create('kept')", "spanmq_test_able") == "ok"


# Numbers of others: a call about one queue changes nothing of another, whatever ids it is given.


def test_ids_of_another_queue_change_nothing_there(caller: Connection) -> None:
    caller.execute("select pgmq.send_batch('others', array_fill('1'::jsonb, array[9]))")
    (lease,) = column(caller, "select lease_id from spanmq.receive('others', 1)")
    caller.execute("select pgmq.archive('others', 2)")
    dead = one(caller, "select lease_id from spanmq.receive('others', 1)")
    caller.execute("select spanmq.reject('others', %s, array[3])", [dead])
    receiver = one(caller, "select receiver_id from spanmq.receiver_open('others') receiver_id")
    number = one(caller, "select queue_id from spanmq_core.queue where name = 'others'")
    tables = column(
        caller,
        "select attrelid::regclass::text from pg_attribute a join pg_class c on c.oid = attrelid"
        " where attname = 'queue_id' and relkind = 'r' and relnamespace = 'spanmq_core'::regnamespace order by 1",
    )
    state = " union all ".join(
        f"select '{table}', string_agg(x::text, ',' order by x::text) from {table} x where queue_id = {number}"
        for table in tables
    )
    before = rows(caller, state)
    assert sum(text is not None for _, text in before) > 8
    dead_letter = one(caller, "select max(dead_letter_id) from spanmq.dead_letters('others')")
    theirs = {
        "lease_id": str(lease),
        "msg_ids": "array[1, 2, 3, 4]",
        "dead_letter_ids": f"array[{dead_letter}]",
        "receiver": f"'{receiver}'",
        "run_id": "(select run_id from runs where queue = 'others')",
        "name": "'of others'",
    }
    changed = set()
    for name, call in calls(caller, "jobs", theirs):
        with caller.transaction(force_rollback=True):
            try:
                with caller.transaction():
                    caller.execute(f"set local role {ROLE}".encode())
                    caller.execute(call.encode())
                    caller.execute("reset role")
            except psycopg.Error:
                continue
            if rows(caller, state) != before:
                changed.add(name)
    assert changed == set()


# Names.

# Of every function, operator and type of PostgreSQL that our functions may name, one of theirs that says so.
SHADOWS = """
do $do$
declare
    it record;
    code text := 'begin perform theirs.shout(); return null; end';
begin
    for it in
        select distinct p.proname, p.oid, pg_get_function_identity_arguments(p.oid) as arguments, p.proretset,
               format_type(p.prorettype, null) as result
        from pg_proc p
        join (select distinct w.word[1] as word from pg_proc f
              cross join lateral regexp_matches(f.prosrc, '([a-z_0-9]+)[(]', 'g') w (word)
              where f.pronamespace::regnamespace::text in ('pgmq', 'spanmq', 'spanmq_call') and not f.prosecdef) u
          on u.word = p.proname
        where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.provariadic = 0
          and 'internal'::regtype <> all (p.proargtypes)
    loop
        begin
            execute format('create function theirs.%I(%s) returns %s %s language plpgsql as %L', it.proname,
                           it.arguments, case when it.proretset then 'setof' end, it.result, code);
        exception when others then
            null;
        end;
    end loop;
    for it in
        select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result,
               'op_' || o.oid as name
        from pg_operator o where o.oprname in ('=', '<>', '<', '>', '<=', '>=', '||', '~', '!~', '+', '-', '*')
          and o.oprleft = any ('{text,name,integer,bigint,boolean,jsonb,anyarray,anycompatiblearray}'::regtype[])
    loop
        begin
            execute format('create function theirs.%I(%s, %s) returns %s language plpgsql as %L', it.name, it.l, it.r,
                           it.result, code);
            execute format('create operator theirs.%s (leftarg = %s, rightarg = %s, function = theirs.%I)',
                           it.oprname, it.l, it.r, it.name);
        exception when others then
            null;
        end;
    end loop;
    for it in select unnest('{text,name,jsonb,_text,uuid,regprocedure,regclass,oid}'::text[]) as name loop
        execute format('create domain theirs.%I as pg_catalog.%I check (theirs.shout() is null)', it.name, it.name);
    end loop;
end $do$;
"""


def test_objects_of_theirs_are_not_called_whatever_the_search_path(caller: Connection) -> None:
    """Neither in a session of a superuser nor of a role that has rights on both queues."""
    caller.execute("create role spanmq_test_able; grant select on runs to spanmq_test_able")
    for queue in ("jobs", "others"):
        give(caller, "manage", queue, "spanmq_test_able")
    as_role(
        caller,
        "create function theirs.shout() returns text language plpgsql as"
        " $$ begin raise exception 'theirs' using errcode = 'THEIR'; end $$;"
        " grant usage on schema theirs to spanmq_test_able;" + SHADOWS,
    )
    assert one(caller, "select count(*) from pg_proc where pronamespace = 'theirs'::regnamespace") > 100
    made = [(name, call) for queue in ("jobs", "others") for name, call in calls(caller, queue)]
    caller.execute("set local search_path = theirs, pg_temp, pg_catalog")
    # Their own code calls them.
    assert sqlstate_of(caller, "select pg_catalog.format('%s', 'a' || 'b'::pg_catalog.text)") == "THEIR"
    called = set()
    for name, call in made:
        # The text of the call is the caller's own: its types are PostgreSQL's.
        of_types = call.replace("::", "::pg_catalog.").replace("pg_catalog.int:", "int:")
        if "THEIR" in (outcome(caller, of_types, role) for role in ("none", "spanmq_test_able")):
            called.add(name)
    assert called == set()


def test_temporary_objects_shadow_nothing(queues: Connection) -> None:
    give(queues, "send", "jobs")
    as_role(
        queues,
        """
        do $$
        declare
            it record;
        begin
            -- Tables like ours, in which all queues are one.
            for it in select relname from pg_class
                      where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace)
                      and relkind = 'r' and relname !~ '[0-9]' loop
                execute format('create temp table %I as select 1 as queue_id, ''jobs''::text as name', it.relname);
            end loop;
        end $$;
        create type pg_temp.leased_message as (msg_id text);
        create domain pg_temp.regclass as text;
        create function pg_temp.has_function_privilege(regprocedure, text) returns boolean
            language sql as 'select true';
        create operator pg_temp.= (leftarg = text, rightarg = text, function = pg_catalog.textne);
        """,
    )
    queues.execute("set local search_path = pg_temp, pg_catalog")
    for queue in ("jobs", "others"):
        expected = needed("send", "jobs", queue)
        wrong = {n: e for n, e in outcomes(queues, queue).items() if ("refused" in e) is (n in expected)}
        assert wrong == {}


# Views.


def test_view_shows_no_function_what_it_does_not_show(caller: Connection) -> None:
    caller.execute(
        "select pgmq.send('jobs', '\"gone\"'), pgmq.send('jobs', '\"shown\"'), pgmq.delete('jobs', 2)"
    )
    caller.execute("select spanmq.create_subscription('later', 'jobs'), pgmq.send('jobs', '\"new\"')")
    caller.execute(
        "select pgmq.send_batch('others', array_fill('1'::jsonb, array[9])), pgmq.read('others', 9, 9)"
    )
    give(caller, "look", "later")
    as_role(
        caller,
        """
        create function theirs.leak(jsonb) returns boolean language plpgsql cost 0.0000001 as
            $$ begin raise notice '%', $1; return true; end $$;
        create function theirs.leak(integer, timestamptz) returns boolean language plpgsql cost 0.0000001 as
            $$ begin raise notice '%', case when $2 is not null then $1 end; return true; end $$;
        create function theirs.leak(bigint) returns boolean language plpgsql cost 1e-44 as
            $$ begin raise notice '%', $1; return true; end $$;
        """,
    )
    notices: list[str] = []
    caller.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
    caller.execute(f"set local role {ROLE}".encode())
    settings = ("indexscan", "bitmapscan", "nestloop", "seqscan", "hashjoin", "mergejoin")
    plans = ["", *(f"set local enable_{setting} = off" for setting in settings)]
    for plan in plans:
        caller.execute(plan.encode())
        for queue, ids, shown in (("jobs", [1, 3, 4], {"1", '"shown"', '"new"'}), ("later", [4], {'"new"'})):
            for leak, values in (
                ("theirs.leak(message)", shown),
                ("theirs.leak(read_ct, last_read_at)", set()),
                ("theirs.leak(read_ct, vt)", {"0"}),
                ("theirs.leak(msg_id)", {str(each) for each in ids}),
            ):
                for order in ("", " order by msg_id limit 9"):
                    notices.clear()
                    query = f"select msg_id from pgmq.q_{queue} where {leak}{order}"
                    assert sorted(column(caller, query)) == ids
                    # A row that the view does not show has no values.
                    assert set(notices) - {"<NULL>"} == values, leak
    # A cast that fails says with what.
    query = "select 1 from pgmq.q_later where (message #>> '{}')::integer = 1"
    with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="new"), caller.transaction():
        caller.execute(query.encode())


# Locks, sequences, publications.

MODES = (
    *("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE"),
    *("SHARE", "SHARE ROW EXCLUSIVE", "EXCLUSIVE", "ACCESS EXCLUSIVE"),
)


def test_role_can_lock_change_publish_nothing(caller: Connection) -> None:
    """But a view or an archive in ACCESS SHARE mode, as any query does."""
    can = set()
    for name, kind, number in rows(caller, RELATIONS):
        statements = [f"create publication mine for table {name}", f"alter table {name} owner to {ROLE}"]
        if kind == "S":
            statements += [f"select nextval({number})", f"select setval({number}, 9)"]
            statements += [f"select * from {name}", f"alter sequence {name} restart"]
        else:
            statements += [f"lock table {name} in {mode} mode" for mode in MODES]
            statements += [f"insert into {name} default values", f"delete from {name}", f"truncate {name}"]
            statements += [f"create trigger t before insert on {name} execute function theirs.f()"]
            statements += [f"create rule r as on insert to {name} do also nothing"]
            statements += [f"select * from {name} for key share"]
        can |= {
            each for each in statements if outcome(caller, each) not in ("42501", "42P01", "42809", "0A000")
        }
    # There entries prove which role calls: see take_caller() of the schema.
    can.remove("insert into spanmq_call.caller default values")
    # Of the view not even that: LOCK asks for the right of this role on what the view reads.
    assert can == {"lock table pgmq.a_jobs in ACCESS SHARE mode"}
    assert outcome(caller, "create publication mine for all tables") == "42501"
    assert outcome(caller, "create publication mine for tables in schema pgmq") == "42501"


def test_no_call_waits_for_an_advisory_lock(queues: Connection) -> None:
    """Any role could take it before, and keep it."""
    held = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
    taking = set()
    for name, call in calls(queues, "jobs"):
        if name == "hold_export":  # It holds one for as long as the session lasts.
            continue
        with queues.transaction(force_rollback=True):
            try:
                with queues.transaction():
                    queues.execute(call.encode())
            except psycopg.Error:
                continue
            if one(queues, held):
                taking.add(name)
    assert taking == {"acquire_queue_lock"}
    naming = (
        "select distinct proname from pg_proc where prosrc ~ '%s' and pronamespace >= 16384 order by proname"
    )
    # A sender tries one, and an export holds one under a number of its own.
    assert column(queues, naming % "advisory") == ["acquire_queue_lock", "draw_ids", "hold_export"]
    assert column(queues, naming % r"\mpg_advisory_(xact_)?lock") == ["acquire_queue_lock"]


# Settings.


@pytest.mark.parametrize("value", ["used", "999999", "-5", "x", "", "9223372036854775807"])
def test_settings_get_a_receiver_no_more_than_the_limit(caller: Connection, value: str) -> None:
    caller.execute("select spanmq.set_policy('jobs', '{\"max_in_flight\": 64}')")
    caller.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]))")
    number = one(caller, "select queue_id from spanmq_core.queue where name = 'jobs'")
    caller.execute(f"set local role {ROLE}".encode())
    for _ in range(100):
        for name in ("place", "turn", "hint"):
            caller.execute("select set_config(%s, %s, true)", [f"spanmq.{name}_{number}", value])
        outcome(caller, "select 1")
        try:
            with caller.transaction():
                caller.execute("select count(*) from spanmq.receive('jobs', 1)")
        except psycopg.DataError:
            break
    caller.execute("reset role")
    assert one(caller, "select count(*) from spanmq_core.unsettled where lease_id <> 0") <= 64


@pytest.mark.parametrize(
    "setting",
    [
        "set local session_replication_role = replica",
        "set local role none",
        "select set_config('role', 'none', true)",
        "set local session authorization default",
        "set local row_security = off",
        "set local spanmq.outer_role = 'none'",
    ],
)
def test_settings_give_no_rights(caller: Connection, setting: str) -> None:
    with caller.transaction(force_rollback=True):
        caller.execute(f"alter role {ROLE} login; set local session authorization {ROLE}".encode())
        try:
            with caller.transaction():
                caller.execute(setting.encode())
        except psycopg.errors.InsufficientPrivilege:
            pass
        if one(caller, "select current_user") == ROLE:
            assert sqlstate_of(caller, WISHES[0]) == "42P01"
