"""Upgrades that change what a function takes and returns, on a small schema and on the real one."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.patience import WAIT_SECONDS
from tests.sql.queue import Connection, one, rows
from tests.sql.schema.conftest import SQL, change, session_of, snapshot

from spanmq import schema
from spanmq.errors import SchemaVersionError, StatementCancelledError
from spanmq.schema.release import Release, load_release
from spanmq.testing import wait_until_waiting


def with_function(folder: Path, text: str, version: str) -> Release:
    (folder / "functions/asked.sql").write_text(text)
    return load_release(folder, version=version)


def create(header: str, body: str) -> str:
    return f"create or replace function spanmq.asked({header} language plpgsql as $$ begin {body} end $$;\n"


ONE = create("a int) returns int", "return a;")


MORE = create("a int, b int default 2) returns int", "return a + b;")
# What a function was, what it is, a call and its result.
CHANGES = {
    "an argument more": (ONE, MORE, "1", "3"),
    "an argument less": (MORE, ONE, "1", "1"),
    "another name": (ONE, create("x int) returns int", "return x;"), "x => 1", "1"),
    "another type": (ONE, create("a bigint) returns int", "return a;"), "1", "1"),
    "another result": (ONE, create("a int) returns text", "return a;"), "1", "1"),
    "a set": (ONE, create("a int) returns setof int", "return next a;"), "1", "1"),
    "an output argument": (ONE, create("a int, out b int)", "b := a;"), "1", "1"),
    "a column more": (
        create("a int) returns table (b int)", "return query select a;"),
        create("a int) returns table (b int, c int)", "return query select a, a;"),
        *("1", "(1,1)"),
    ),
    "a default less": (create("a int default 1) returns int", "return a;"), ONE, "1", "1"),
    "another default": (
        create("a int default 1) returns int", "return a;"),
        create("a int default 2) returns int", "return a;"),
        *("", "2"),
    ),
    "variadic": (ONE, create("variadic a int[]) returns int", "return a[2];"), "1, 2", "2"),
    "one of two of a name": (ONE + create("a text) returns text", "return a;"), ONE, "'1'", "1"),
}


def test_function_changes_what_it_takes_and_returns(session: Connection, folder: Path) -> None:
    for change_of, (old, new, call, result) in CHANGES.items():
        with session.transaction(force_rollback=True):
            schema.install(session, release=with_function(folder, old, "0.1.0"))
            newer = with_function(folder, new, "0.2.0")
            schema.install(session, release=newer)
            assert one(session, f"select spanmq.asked({call})::text") == result, change_of
            assert one(session, "select count(*) from pg_proc where proname = 'asked'") == 1
            assert schema.verify(session, release=newer) == []


def test_function_that_a_release_lacks_is_dropped(session: Connection, folder: Path) -> None:
    schema.install(session, release=with_function(folder, ONE, "0.1.0"))
    fresh = with_function(folder, "", "0.2.0")
    schema.install(session, release=fresh)
    upgraded = snapshot(session)
    schema.uninstall(session, force=True, release=fresh)
    schema.install(session, release=fresh)
    assert snapshot(session) == upgraded


# What a user makes of a function, and what the error then says of it.
DEPENDENTS = {
    "create view public.mine as select spanmq.asked(1) as asked": "view public.mine as",
    "create function public.mine() returns int language sql begin atomic select spanmq.asked(1); end": (
        "create or replace function public.mine()"
    ),
    "create table public.mine (a int default spanmq.asked(1))": "alter a set default spanmq.asked(1)",
    "create table public.mine (a int check (spanmq.asked(a) > 0))": "add constraint mine_a_check",
}


@pytest.mark.parametrize("new", ["", create("a int, b int default 0) returns int", "return a;")])
def test_upgrade_names_the_objects_that_need_what_it_would_drop(
    session: Connection, folder: Path, new: str
) -> None:
    schema.install(session, release=with_function(folder, ONE, "0.1.0"))
    newer = with_function(folder, new, "0.2.0")
    for made, words in DEPENDENTS.items():
        with session.transaction(force_rollback=True):
            session.execute(made.encode())
            before = snapshot(session)
            with pytest.raises(SchemaVersionError, match="depend on functions") as refused:
                schema.install(session, release=newer)
            assert words in (refused.value.detail or "").lower()
            assert snapshot(session) == before
            session.execute("drop schema public cascade")
            assert schema.install(session, release=newer).version == "0.2.0"


def test_object_that_needs_an_unchanged_function_stays(session: Connection, folder: Path) -> None:
    schema.install(session, release=with_function(folder, ONE, "0.1.0"))
    session.execute("create view public.mine as select spanmq.asked(1) as asked")
    schema.install(session, release=with_function(folder, ONE.replace("return a", "return a + 1"), "0.2.0"))
    assert one(session, "select asked from public.mine") == 2


@pytest.mark.parametrize("new", [ONE, create("a int, b int default 0) returns int", "return a;")])
def test_rights_on_a_function_stay(
    session: Connection, folder: Path, role: str, empty_database: str, new: str
) -> None:
    schema.install(session, release=with_function(folder, ONE, "0.1.0"))
    session.execute(
        f"revoke all on function spanmq.asked(int) from public; grant usage on schema spanmq to {role}"
    )
    with session_of(empty_database, role) as other, pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute("select spanmq.asked(1)")
    session.execute(f"grant execute on function spanmq.asked(int) to {role} with grant option")
    schema.install(session, release=with_function(folder, new, "0.2.0"))
    granted = "select bool_and(is_grantable), min(pg_get_userbyid(grantee)) from pg_proc, aclexplode(proacl)"
    asked = f"{granted} where proname = 'asked' and grantee <> proowner"
    assert session.execute(asked.encode()).fetchall() == [(True, role)]
    with session_of(empty_database, role) as other:
        assert one(other, "select spanmq.asked(1)") == 1


def test_function_of_the_users_stays(session: Connection, folder: Path) -> None:
    schema.install(session, release=with_function(folder, ONE, "0.1.0"))
    session.execute("create function spanmq.mine() returns int language sql as 'select 1'")
    schema.install(session, release=with_function(folder, "", "0.2.0"))
    assert one(session, "select spanmq.mine()") == 1


# The real schema: entries, which callers use, and wrappers of single queues are made of other functions.


@pytest.fixture
def real(tmp_path: Path) -> Path:
    shutil.copytree(SQL, tmp_path / "real")
    return tmp_path / "real"


def test_upgrade_to_the_same_functions_replaces_each(session: Connection) -> None:
    schema.install(session)
    session.execute("select pgmq.create('orders')")
    ids = (
        "select array_agg(oid || '' order by oid) from pg_proc where pronamespace::regnamespace::text ~ 'mq'"
    )
    before = one(session, ids)
    schema.upgrade(session)
    assert one(session, ids) == before


PAUSE = "create or replace function spanmq_call.pause(queue text) returns void"


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ("spanmq_call.pause(queue text, reason text default null) returns void", "'orders', 'lunch'"),
        ("spanmq_call.pause(queue_name text) returns void", "queue_name => 'orders'"),
    ],
)
def test_entries_and_wrappers_follow_their_function(
    session: Connection, real: Path, role: str, empty_database: str, header: str, call: str
) -> None:
    schema.install(session)
    session.execute("select pgmq.create('orders'); select pgmq.create('others')")
    session.execute(f"select spanmq.grant_queue('{role}', 'orders', 'manage')".encode())
    body = (PAUSE, f"create or replace function {header}")
    replaced = (
        [body]
        if "queue text" in header
        else [
            body,
            ("set_policy(queue, '{\"paused\": true}')", "set_policy(queue_name, '{\"paused\": true}')"),
        ]
    )
    newer = change(real, "settle/state.sql", *replaced)
    schema.upgrade(session, release=newer)
    assert schema.verify(session, release=newer) == []
    with session_of(empty_database, role) as other:
        other.execute(f"select spanmq.pause({call})".encode())
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("select spanmq.pause('others')")
    assert one(session, "select count(*) from pg_proc where proname ~ '^pause(_[0-9]+)?$'") == 4


def test_function_that_moves_to_another_verb_leaves_the_roles_of_the_first(
    session: Connection, real: Path, role: str, empty_database: str
) -> None:
    listed = (real / "functions/entries.sql").read_text()
    moved = (" +pause +resume", " +resume")
    older = change(real, "entries.sql", moved, ("peek peek_archive", "+pause peek peek_archive"))
    schema.install(session, release=older)
    session.execute(f"select pgmq.create('orders'); select spanmq.grant_all('{role}', 'look')".encode())
    with session_of(empty_database, role) as other:
        other.execute("select spanmq.pause('orders')")
        (real / "functions/entries.sql").write_text(listed)
        more = PAUSE.replace("queue text", "queue text, reason text default null")
        schema.upgrade(session, release=change(real, "settle/state.sql", (PAUSE, more)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute("select spanmq.pause('orders')")


def test_wrapper_of_a_function_that_moves_to_another_verb_is_dropped(
    session: Connection, real: Path, role: str, empty_database: str
) -> None:
    listed = (real / "functions/entries.sql").read_text()
    moved = (" +pause +resume", " +resume")
    older = change(real, "entries.sql", moved, ("peek peek_archive", "+pause peek peek_archive"))
    schema.install(session, release=older)
    session.execute(
        f"select pgmq.create('orders'); select spanmq.grant_queue('{role}', 'orders', 'look')".encode()
    )
    [wrapper] = one(
        session, "select array_agg(oid::regproc::text) from pg_proc where proname ~ '^pause_[0-9]+$'"
    )
    with session_of(empty_database, role) as other:
        call = f"select {wrapper}(spanmq_call.prove_caller())".encode()
        other.execute(call)
        (real / "functions/entries.sql").write_text(listed)
        schema.upgrade(session, release=load_release(real, version="9.1.0"))
        with pytest.raises(psycopg.errors.UndefinedFunction):
            other.execute(call)
        other.execute("select * from spanmq.count_messages(array['orders'])")


def test_entry_and_wrappers_go_with_their_function(session: Connection, real: Path, role: str) -> None:
    schema.install(session)
    session.execute("select pgmq.create('orders')")
    session.execute(f"select spanmq.grant_queue('{role}', 'orders', 'manage')".encode())
    newer = change(real, "settle/state.sql", (PAUSE, PAUSE.replace("pause", "halt")))
    schema.upgrade(session, release=newer)
    assert schema.verify(session, release=newer) == []
    assert rows(session, "select oid::regprocedure from pg_proc where proname ~ '^pause(_[0-9]+)?$'") == []


def test_function_with_the_name_of_one_of_ours_is_found(small: Connection, older: Release) -> None:
    small.execute(
        "create function spanmq.made(a text, b int default 0) returns int language sql as 'select 1'"
    )
    differences = schema.verify(small, release=older)
    assert [(difference.name, difference.problem) for difference in differences] == [
        ("spanmq.made(a text, b integer)", "unknown")
    ]


# Locks.


def test_upgrade_lets_calls_pass_that_wait_behind_it(
    small: Connection, empty_database: str, newer: Release
) -> None:
    with psycopg.connect(empty_database) as reader, ThreadPoolExecutor(2) as threads:
        reader.execute("select from spanmq_core.queue")
        upgrading = threads.submit(schema.install, small, release=newer)
        wait_until_waiting(reader, small.info.backend_pid)

        def call() -> None:
            with psycopg.connect(empty_database, autocommit=True) as other:
                other.execute("select pgmq.create('orders')")

        calling = threads.submit(call)
        calling.result(WAIT_SECONDS)
        assert not upgrading.done()
        reader.rollback()
        assert upgrading.result(WAIT_SECONDS).version == "0.2.0"


@pytest.mark.parametrize("is_open", [False, True])
def test_upgrade_that_gets_no_lock_has_changed_nothing(
    small: Connection, empty_database: str, newer: Release, is_open: bool
) -> None:
    before = snapshot(small)
    small.autocommit = not is_open
    small.execute("select 1; set local lock_timeout = '10ms'" if is_open else "set lock_timeout = '10ms'")
    with psycopg.connect(empty_database) as reader:
        reader.execute("select from spanmq_core.queue")
        with pytest.raises(StatementCancelledError, match="lock timeout"):
            schema.install(small, release=newer, lock_wait_seconds=60 if is_open else 0)
    small.rollback()
    assert snapshot(small) == before
