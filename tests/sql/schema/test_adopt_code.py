"""A take-over runs no code of a queue's owner, neither during it nor afterwards."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import psycopg
import pytest
from tests.sql.queue import Connection, one
from tests.sql.schema.conftest import new_role, session_of
from tests.sql.schema.upstream import make_partitioned

from spanmq import schema
from spanmq.errors import NotPossibleError
from spanmq.schema.adopt import adopt
from spanmq.testing import wait_until_waiting

# What a role can have of its own: each piece of it notes the role that runs it in a sequence, which no rollback undoes.
THEIRS = """
create function theirs.note() returns bigint language plpgsql
    as 'begin return setval(''public.ran'', current_user::regrole::oid::bigint); end';
create function theirs.value(bigint) returns bigint language plpgsql immutable
    as 'begin perform theirs.note(); return 1; end';
create function theirs.fire() returns trigger language plpgsql
    as 'begin perform theirs.note(); return coalesce(new, old); end';
create function theirs.compare(bigint, bigint) returns int language plpgsql immutable
    as 'begin perform theirs.note(); return btint8cmp($1, $2); end';
create function theirs.equal(bigint, bigint) returns boolean language plpgsql immutable
    as 'begin perform theirs.note(); return true; end';
create operator theirs.=== (leftarg = bigint, rightarg = bigint, function = theirs.equal);
create domain theirs.positive as bigint default 1 check (theirs.value(value) = 1);
create type theirs.kind as (n bigint);
create function theirs.kind(bigint) returns theirs.kind language plpgsql immutable
    as 'begin perform theirs.note(); return row(1)::theirs.kind; end';
create cast (bigint as theirs.kind) with function theirs.kind(bigint);
create table theirs.copy (n bigint);
create trigger fire before insert on theirs.copy for each row execute function theirs.fire();
"""
# Only a superuser makes one, of functions of any role.
CLASS = """
create operator class theirs.ops for type bigint using btree
    as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >, function 1 theirs.compare(bigint, bigint)
"""
TRANSPARENT = "query_to_xml('select theirs.note()', true, true, '')"
# Each kind of object that holds code, with the places where it cannot be.
PARTITIONS = {"pgmq.q_parts_default", "pgmq.a_parts_default"}
SETTINGS = {"pgmq.meta", "pgmq.topic_bindings"}
TABLES = {"pgmq.q_mine", "pgmq.a_mine"} | PARTITIONS
KINDS: dict[str, tuple[str, set[str]]] = {
    "check": ("alter table {table} add check (theirs.value(1) = 1) not valid", set()),
    "operator": (
        "alter table {table} add check (1::bigint operator(theirs.===) 1::bigint) not valid",
        set(),
    ),
    "cast": ("alter table {table} add check (((1::bigint)::theirs.kind).n = 1) not valid", set()),
    "domain": ("alter table {table} add check (1::bigint::theirs.positive = 1) not valid", set()),
    "SQL in a text": (f"alter table {{table}} add check ({TRANSPARENT} is not null) not valid", set()),
    "default of a setting": ("alter table {table} alter {column} set default theirs.value(1)::text", TABLES),
    "default": ("alter table {table} alter read_ct set default theirs.value(1)", SETTINGS),
    "default with SQL in a text": (
        f"alter table {{table}} alter read_ct set default coalesce(length({TRANSPARENT}::text), 1)",
        SETTINGS,
    ),
    "generated column": (
        "alter table {table} add theirs bigint generated always as (theirs.value({key})) stored",
        PARTITIONS,
    ),
    "column of a domain": ("alter table {table} add positive theirs.positive", PARTITIONS),
    "index": ("create index on {table} (theirs.value({key}))", set()),
    "part of an index": ("create index on {table} ({column}) where theirs.value(1) = 1", set()),
    "operator class": ("create index on {table} (msg_id theirs.ops)", SETTINGS),
    "statistics": ("create statistics theirs.s on (theirs.value({key})) from {table}", set()),
    "exclusion": (
        "alter table {table} add exclude using btree ((theirs.value({key}) * {key}) with =)",
        set(),
    ),
    "trigger": (
        "create trigger fire before insert on {table} for each row execute function theirs.fire()",
        set(),
    ),
    "constraint trigger": (
        "create constraint trigger fire_after after insert on {table} for each row execute function theirs.fire()",
        set(),
    ),
    "rule": ("create rule theirs as on insert to {table} do also insert into theirs.copy values (1)", set()),
    "policy": (
        (
            "create policy theirs on {table} using (theirs.value(1) = 1);"
            " alter table {table} enable row level security; alter table {table} force row level security"
        ),
        set(),
    ),
    "child": (
        (
            "create table theirs.child (check (theirs.value(1) = 1)) inherits ({table});"
            " create index on theirs.child ((1)) where theirs.value(1) = 1"
        ),
        PARTITIONS,
    ),
    "foreign key": (
        (
            "create table theirs.other (id bigint references {table} on delete cascade);"
            " create trigger fire before delete on theirs.other for each statement execute function theirs.fire()"
        ),
        PARTITIONS | SETTINGS,
    ),
    "view": (
        (
            "drop table {table}; create view {table} as select theirs.value(1) as msg_id, 1 as read_ct, now() as vt,"
            " now() as enqueued_at, '1'::jsonb as message"
        ),
        PARTITIONS | SETTINGS,
    ),
}
COLUMNS = {"pgmq.meta": "queue_name", "pgmq.topic_bindings": "pattern"}
KEYS = {place: f"length({column})::bigint" for place, column in COLUMNS.items()}
ROWS = {
    "pgmq.meta": "insert into pgmq.meta values ('any queue', false, false)",
    "pgmq.topic_bindings": "insert into pgmq.topic_bindings values ('a', 'mine')",
}
ROWS_OF_DEFAULTS = {
    "pgmq.meta": "insert into pgmq.meta (is_partitioned, is_unlogged) values (false, false)",
    "pgmq.topic_bindings": "insert into pgmq.topic_bindings (queue_name) values ('mine')",
}
PLACES = sorted(TABLES | SETTINGS)


@pytest.fixture
def role(upstream: Connection) -> Iterator[str]:
    """A role with queues of its own, `mine` and the partitioned `parts`, and all that it can make beside."""
    upstream.execute("create sequence public.ran")
    upstream.execute("grant all on sequence public.ran to public")
    make_partitioned(upstream)
    upstream.execute("select pgmq.create('mine')")
    upstream.execute("select pgmq.send_batch('mine', array_fill('{}'::jsonb, array[4]))")
    upstream.execute("select pgmq.archive('mine', 1), pgmq.bind_topic('b', 'mine')")
    for name in new_role(upstream):
        upstream.execute(f"create schema theirs authorization {name}".encode())
        upstream.execute(f"grant usage, create on schema pgmq to {name}".encode())
        for table in ("meta", "topic_bindings", "notify_insert_throttle", *(f"{p}_mine" for p in "qa")):
            upstream.execute(f"alter table pgmq.{table} owner to {name}".encode())
        for table in ("q_parts", "q_parts_p0", "q_parts_default", "a_parts", "a_parts_default"):
            upstream.execute(f"alter table pgmq.{table} owner to {name}".encode())
        upstream.execute(f"set role {name}".encode())
        upstream.execute(THEIRS)
        upstream.execute("reset role")
        upstream.execute(CLASS)
        yield name


def ran(session: Connection) -> bool:
    return bool(one(session, "select is_called from public.ran"))


def use(session: Connection, table: str) -> None:
    """Do with a table what PostgreSQL, a count, an archive and a retention do with it."""
    insert = f"insert into {table} (msg_id, vt) overriding system value values (99, now())"
    for statement in (
        f"analyze {table}",
        f"select count(*) from {table}",
        f"select * from {table}",
        ROWS.get(table, insert),
        ROWS_OF_DEFAULTS.get(table, insert),
        f"delete from {table}",
    ):
        with suppress(psycopg.Error), session.transaction():
            session.execute(statement.encode())


def expect_plan(session: Connection) -> str:
    """Check that a dry run names obstacles and does not run what the fixture's role has made; return them."""
    session.execute("select setval('public.ran', 1, false)")
    obstacles = adopt(session, dry_run=True).obstacles
    assert not ran(session)
    assert obstacles
    return "\n".join(f"{each.object}: {each.reason}" for each in obstacles)


def expect_refusal(session: Connection) -> str:
    """Check that neither a dry run nor a take-over runs what the fixture's role has made; return the obstacles."""
    obstacles = expect_plan(session)
    with pytest.raises(NotPossibleError) as caught:
        adopt(session)
    assert not ran(session)
    assert caught.value.detail == obstacles
    return obstacles


def make(session: Connection, role: str, kind: str, place: str) -> None:
    """Make an object of a kind as the role that owns the place."""
    words = {"table": place, "column": COLUMNS.get(place, "read_ct"), "key": KEYS.get(place, "msg_id")}
    session.execute(f"set role {role}".encode())
    session.execute(KINDS[kind][0].format(**words).encode())
    session.execute("reset role")


@pytest.mark.parametrize("place", PLACES)
def test_code_of_an_owner_is_an_obstacle_and_does_not_run(
    upstream: Connection, role: str, place: str
) -> None:
    kinds = [kind for kind, (_, exempt) in KINDS.items() if place not in exempt]
    without_refusal, without_run = [], []
    for kind in kinds:
        with upstream.transaction(force_rollback=True):
            make(upstream, role, kind, place)
            try:
                # A take-over, below, does the same as its dry run up to the obstacles.
                expect_refusal(upstream) if kind == "view" else expect_plan(upstream)
            except (AssertionError, pytest.fail.Exception) as error:
                without_refusal.append((kind, str(error)[:200]))
            # The code is one that runs when it is used.
            use(upstream, place)
            upstream.execute(f"set role {role}".encode())
            use(upstream, place)
            if not ran(upstream):
                without_run.append(kind)
    assert without_refusal == []
    assert without_run == []
    for kind in kinds:
        if kind != "view":
            make(upstream, role, kind, place)
    expect_refusal(upstream)


def test_foreign_table_is_not_read(upstream: Connection, role: str) -> None:
    upstream.execute("create foreign data wrapper theirs; create server theirs foreign data wrapper theirs")
    upstream.execute(
        "create foreign table pgmq.far partition of pgmq.a_parts for values from (100) to (200) server theirs"
    )
    assert "foreign table pgmq.far: it is not an ordinary table: drop or detach it" in expect_refusal(
        upstream
    )


def test_functions_of_postgresql_that_only_compute_are_no_obstacle(upstream: Connection, role: str) -> None:
    upstream.execute(
        "alter table pgmq.a_mine add check (read_ct >= 0), add note text default upper('a'),"
        " add at timestamptz default now(), add size int generated always as (length(message::text)) stored"
    )
    upstream.execute("create index on pgmq.a_mine ((message ->> 'a')) where msg_id > 1")
    upstream.execute("create index on pgmq.q_mine ((headers ->> 'a'))")
    adopt(upstream)
    upstream.execute("select pgmq.archive('mine', 2)")
    assert one(upstream, "select note from pgmq.a_mine where msg_id = 2") == "A"


def test_schema_of_a_role_with_fewer_rights_is_refused(upstream: Connection, role: str) -> None:
    upstream.execute(f"alter schema pgmq owner to {role}".encode())
    assert expect_refusal(upstream).startswith(
        f"schema pgmq: it belongs to {role}, which has fewer rights than"
    )


def test_functions_of_others_in_the_schema_are_refused(upstream: Connection, role: str) -> None:
    upstream.execute("create function pgmq.send(text, json) returns int language sql as 'select 1'")
    upstream.execute(f"alter function pgmq.send(text, json) owner to {role}".encode())
    assert expect_refusal(upstream).startswith(
        f"function pgmq.send(text,json): it belongs to {role}, and calls"
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_table_that_is_replaced_while_the_adoption_waits_is_not_read(
    upstream: Connection, upstream_database: str, role: str, dry_run: bool
) -> None:
    upstream.execute("select setval('public.ran', 1, false)")
    refused: list[Exception | tuple[object, ...]] = []

    def take_over(session: Connection) -> None:
        try:
            refused.append(adopt(session, dry_run=dry_run).obstacles)
        except NotPossibleError as error:
            refused.append(error)

    with (
        session_of(upstream_database, role) as theirs,
        psycopg.connect(upstream_database, autocommit=True) as adopting,
    ):
        with theirs.transaction():
            theirs.execute(KINDS["view"][0].format(table="pgmq.q_mine").encode())
            thread = Thread(target=take_over, args=[adopting], daemon=True)
            thread.start()
            wait_until_waiting(upstream, adopting.info.backend_pid)
        thread.join()
    assert "view pgmq.q_mine" in str(getattr(refused[0], "detail", refused[0]))
    assert not ran(upstream)


def test_dry_run_keeps_what_it_checked_as_it_was(
    upstream: Connection, upstream_database: str, role: str
) -> None:
    with session_of(upstream_database, role) as theirs, upstream.transaction():
        assert adopt(upstream, dry_run=True).obstacles == ()
        theirs.execute("set lock_timeout = '10ms'")
        for kind in ("index", "statistics", "trigger", "rule", "policy", "child", "view"):
            statement = KINDS[kind][0].format(table="pgmq.q_mine", key="msg_id")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                theirs.execute(statement.encode())
        assert one(theirs, "select pgmq.send('mine', '{}')") == 5


def test_archive_and_its_partitions_are_the_adopter_s(
    upstream: Connection, upstream_database: str, role: str
) -> None:
    upstream.execute("create table pgmq.a_parts_p1 partition of pgmq.a_parts for values from (100) to (200)")
    upstream.execute(f"alter table pgmq.a_parts_p1 owner to {role}".encode())
    for grant in (
        "trigger on pgmq.a_parts_default to public",
        "references (msg_id) on pgmq.a_mine to public",
        "references, trigger on pgmq.a_mine to pg_monitor with grant option",
    ):
        upstream.execute(f"grant {grant}".encode())
    adopt(upstream)
    owners = "select string_agg(distinct relowner::regrole::text, ',') from pg_class where relname ~ '^a_'"
    assert one(upstream, owners) == one(upstream, "select current_user")
    with session_of(upstream_database, role) as theirs:
        for statement in (
            "create trigger fire before insert on pgmq.a_parts_default for each row execute function theirs.fire()",
            "create trigger fire before insert on pgmq.a_mine for each row execute function theirs.fire()",
            "create table theirs.other (id bigint references pgmq.a_mine (msg_id))",
            "create function pgmq.send(text, json) returns int language sql as 'select 1'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                theirs.execute(statement.encode())
        # The role manages its queue as before.
        theirs.execute("select pgmq.archive('mine', 2)")
    assert not [each for each in schema.verify(upstream) if each.problem == "owner"]
