"""Install, upgrade, and what they refuse: on a small schema and on the real one."""

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.cli.program import wait_until
from tests.sql.queue import Connection, column, one
from tests.sql.schema.conftest import session_of, snapshot

from spanmq import schema
from spanmq.errors import (
    DataLossError,
    InvalidTransactionError,
    MissingPrivilegeError,
    NotPossibleError,
    SchemaMissingError,
    SchemaVersionError,
    ServerError,
    ServerReadOnlyError,
)
from spanmq.schema.release import Release, load_release

SCHEMAS = ("pgmq", "spanmq", "spanmq_call", "spanmq_core")


# Installing.


def test_install_makes_everything_and_records_it(session: Connection, older: Release) -> None:
    assert schema.state(session).holding is schema.Holding.NOTHING
    done = schema.install(session, release=older)
    assert done == schema.Installed("0.1.0", ("0001_core.sql",), functions_applied=True)
    now = schema.state(session, release=older)
    assert (now.holding, now.version) == (schema.Holding.INSTALLED, "0.1.0")
    assert one(session, "select spanmq.version()") == "0.1.0"
    session.execute("select pgmq.create('orders')")
    recorded = session.execute("select name, checksum, version from spanmq_core.migration").fetchall()
    assert recorded == [("0001_core.sql", older.migrations[0].checksum, "0.1.0")]
    assert schema.verify(session, release=older) == []


def test_second_install_touches_nothing(small: Connection, older: Release) -> None:
    touched = "select max(xmin::text::bigint) from pg_proc"
    before = one(small, touched)
    assert schema.install(small, release=older) == schema.Installed("0.1.0", (), functions_applied=False)
    assert one(small, touched) == before
    assert one(small, "select count(*) from spanmq_core.release") == 1


def test_install_joins_the_callers_transaction(session: Connection, older: Release) -> None:
    with session.transaction(force_rollback=True):
        schema.install(session, release=older)
        assert one(session, "select spanmq.version()") == "0.1.0"
    assert schema.state(session).holding is schema.Holding.NOTHING


def side_by_side_20(dsn: str, act: Callable[[Connection], schema.Installed]) -> Counter[tuple[Any, ...]]:
    """Do it in twenty sessions at once; return how often each outcome came."""
    start = threading.Barrier(20)

    def run() -> tuple[Any, ...]:
        with psycopg.connect(dsn) as mine:
            start.wait()
            done = act(mine)
        return done.migrations, done.functions_applied

    with ThreadPoolExecutor(20) as threads:
        return Counter(future.result() for future in [threads.submit(run) for _ in range(20)])


@pytest.mark.parametrize("isolation", [None, psycopg.IsolationLevel.SERIALIZABLE])
def test_twenty_installs_and_upgrades_at_once_make_one_schema(
    empty_database: str, older: Release, newer: Release, isolation: psycopg.IsolationLevel | None
) -> None:
    def install(mine: Connection) -> schema.Installed:
        mine.isolation_level = isolation
        return schema.install(mine, release=older)

    def upgrade(mine: Connection) -> schema.Installed:
        return schema.upgrade(mine, release=newer)

    first, rest = ("0001_core.sql",), ((), False)
    assert side_by_side_20(empty_database, install) == {(first, True): 1, rest: 19}
    assert side_by_side_20(empty_database, upgrade) == {(("0002_orders.sql",), True): 1, ((), True): 19}
    with psycopg.connect(empty_database) as opened:
        assert schema.verify(opened, release=newer) == []


def test_settings_of_the_callers_transaction_are_put_back(
    session: Connection, owner: Connection, older: Release
) -> None:
    schema.install(owner, release=older)
    names = "search_path, role, check_function_bodies, client_min_messages"
    settings = f"select array(select current_setting(name) from unnest('{{{names}}}'::text[]) name)"
    session.execute("set search_path = 'public'")
    with session.transaction():
        before = one(session, settings)
        schema.upgrade(session, release=older)
        assert one(session, settings) == before
        schema.uninstall(session, release=older)
        assert one(session, settings) == before


def test_upgrade_adds_what_is_new_keeps_live_functions_and_ends_as_a_fresh_install(
    small: Connection, newer: Release, role: str
) -> None:
    small.execute(f"grant execute on function pgmq.create(text) to {role}".encode())
    identity = "select array[oid::text, proacl::text] from pg_proc where proname = 'create'"
    before = one(small, identity)
    done = schema.install(small, release=newer)
    assert done == schema.Installed("0.2.0", ("0002_orders.sql",), functions_applied=True)
    assert one(small, identity) == before
    assert one(small, "select spanmq.version()") == "0.2.0"
    assert schema.verify(small, release=newer) == []
    upgraded = snapshot(small)
    schema.uninstall(small, force=True, release=newer)
    schema.install(small, release=newer)
    assert snapshot(small) == upgraded


def test_install_works_on_any_kind_of_connection(empty_database: str, older: Release) -> None:
    with psycopg.connect(empty_database, row_factory=dict_row, prepare_threshold=0) as odd:
        schema.install(odd, release=older)
    with psycopg.connect(empty_database) as opened:
        assert schema.state(opened, release=older).holding is schema.Holding.INSTALLED


def test_failure_in_the_middle_changes_nothing_and_says_where(session: Connection, folder: Path) -> None:
    (folder / "functions/zz.sql").write_text("create function spanmq.bad() returns x language sql as '';")
    with pytest.raises(ServerError) as caught:
        schema.install(session, release=load_release(folder))
    assert "in functions/zz.sql" in caught.value.__notes__
    assert one(session, "select count(*) from pg_namespace where nspname in ('pgmq', 'spanmq')") == 0


# Upgrading.


def test_upgrade_repairs_functions(small: Connection, older: Release) -> None:
    small.execute("drop function spanmq.made(text)")
    assert schema.install(small, release=older).functions_applied is False
    assert schema.upgrade(small, release=older) == schema.Installed("0.1.0", (), functions_applied=True)
    assert schema.verify(small, release=older) == []


def test_upgrade_and_uninstallation_of_nothing_are_refused(session: Connection, older: Release) -> None:
    for act in (schema.upgrade, schema.uninstall):
        with pytest.raises(SchemaMissingError, match="not installed"):
            act(session, release=older)


def test_superuser_who_upgrades_leaves_the_owner(
    session: Connection, owner: Connection, older: Release, folder: Path, role: str
) -> None:
    schema.install(owner, release=older)
    (folder / "tables/0002_more.sql").write_text("create table spanmq.more (id int);")
    release = load_release(folder, version="0.2.0")
    schema.upgrade(session, release=release)
    owners = "select distinct relowner::regrole::text from pg_class where relnamespace = 'spanmq_core'::regnamespace"
    assert column(session, owners) == [role]
    assert schema.verify(session, release=release) == []


# What is refused.


def test_newer_schema_is_refused(session: Connection, older: Release, newer: Release) -> None:
    schema.install(session, release=newer)
    for act in (schema.install, schema.upgrade, schema.uninstall):
        with pytest.raises(SchemaVersionError, match=r"of spanmq 0\.2\.0, this is 0\.1\.0") as caught:
            act(session, release=older)
        assert caught.value.sqlstate == "MQ006"
    assert schema.state(session, release=older).holding is schema.Holding.NEWER
    assert one(session, "select spanmq.version()") == "0.2.0"


def test_newer_version_without_migrations_is_refused(session: Connection, folder: Path) -> None:
    schema.install(session, release=load_release(folder, version="0.10.0"))
    with pytest.raises(SchemaVersionError):
        schema.install(session, release=load_release(folder, version="0.9.0"))


def test_edited_migration_is_refused(small: Connection, folder: Path) -> None:
    with (folder / "tables/0001_core.sql").open("a") as file:
        file.write("-- edited")
    edited = load_release(folder, version="0.1.0")
    with pytest.raises(SchemaVersionError, match=r"tables/0001_core\.sql"):
        schema.install(small, release=edited)
    problems = [(difference.name, difference.problem) for difference in schema.verify(small, release=edited)]
    assert problems == [("0001_core.sql", "changed")]


def test_upstream_tables_are_refused(session: Connection, older: Release) -> None:
    session.execute("create schema pgmq")
    session.execute("create table pgmq.meta (queue_name varchar)")
    assert schema.state(session).holding is schema.Holding.UPSTREAM_SQL_ONLY
    with pytest.raises(NotPossibleError, match="spanmq schema adopt"):
        schema.install(session, release=older)
    with pytest.raises(NotPossibleError):
        schema.uninstall(session, force=True, release=older)
    assert one(session, "select count(*) from pgmq.meta") == 0


def test_upstream_extension_is_refused(session: Connection, older: Release) -> None:
    # The catalogs of a database of our own: a row is all that there is to see of an extension.
    session.execute("set allow_system_table_mods = on")
    session.execute(
        "insert into pg_extension select 99999, 'pgmq', extowner, extnamespace, true, '1.9.0'"
        " from pg_extension limit 1"
    )
    session.execute("create schema pgmq")
    for table in ("meta", "q_orders"):
        session.execute(f"create table pgmq.{table} (queue_name varchar)".encode())
        session.execute(
            "insert into pg_depend"
            " select 'pg_class'::regclass, %s::regclass, 0, 'pg_extension'::regclass, 99999, 0, 'e'",
            [f"pgmq.{table}"],
        )
    now = schema.state(session)
    assert (now.holding, now.version) == (schema.Holding.UPSTREAM_EXTENSION, "1.9.0")
    with pytest.raises(NotPossibleError, match=r"extension 1\.9\.0"):
        schema.install(session, release=older)


def test_read_only_session_is_refused(empty_database: str, older: Release) -> None:
    with psycopg.connect(empty_database, options="-c default_transaction_read_only=on") as reader:
        with pytest.raises(ServerReadOnlyError, match="default_transaction_read_only"):
            schema.install(reader, release=older)
        assert schema.state(reader).is_read_only


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"server_version": 130012}, SchemaVersionError),
        ({"is_standby": True}, ServerReadOnlyError),
        ({"may_create_schemas": False}, MissingPrivilegeError),
    ],
)
def test_server_that_can_not_be_installed_on_is_refused(
    session: Connection, older: Release, facts: dict[str, Any], expected: type[Exception]
) -> None:
    manager = schema.manager
    row = manager.query(session, manager.STATE_QUERY)[0]
    assert manager.plan(manager.read_state(row, [], [], older), older, reapply=False) != []
    with pytest.raises(expected):
        manager.plan(manager.read_state(row | facts, [], [], older), older, reapply=False)


def test_role_without_create_privilege_is_refused(empty_database: str, older: Release, role: str) -> None:
    with (
        session_of(empty_database, role) as poor,
        pytest.raises(MissingPrivilegeError, match="may not create schemas"),
    ):
        schema.install(poor, release=older)


def test_schemas_made_by_an_administrator_are_enough(
    session: Connection, empty_database: str, older: Release, role: str
) -> None:
    for name in SCHEMAS:
        session.execute(f"create schema {name}; grant usage, create on schema {name} to {role}".encode())
    with session_of(empty_database, role) as owner:
        schema.install(owner, release=older)
        assert schema.verify(owner, release=older) == []


@pytest.mark.parametrize(
    "own",
    [
        "function spanmq.version() returns text language sql as $$ select 'mine' $$",
        "table spanmq_call.queue (id int)",
        "table spanmq_core.queue (id int)",
    ],
)
def test_schema_with_objects_of_its_own_is_refused_by_its_name(session: Connection, own: str) -> None:
    name = own.partition(" ")[2].partition(".")[0]
    session.execute(f"create schema {name}; create {own}".encode())
    for act in (schema.install, lambda session: session.execute(schema.sql().encode())):
        with pytest.raises((NotPossibleError, psycopg.Error), match=f"the schema {name} has objects"):
            act(session)
        session.execute("rollback")
    assert schema.state(session).holding is schema.Holding.NOTHING
    session.execute(f"alter schema {name} rename to mine")
    schema.install(session)
    assert schema.verify(session) == []


def test_role_that_is_not_the_owner_can_not_upgrade(
    small: Connection, empty_database: str, older: Release, role: str
) -> None:
    small.execute(
        f"grant usage on schema spanmq_core to {role};"
        f" grant select on spanmq_core.migration, spanmq_core.release to {role}".encode()
    )
    with session_of(empty_database, role) as other, pytest.raises(MissingPrivilegeError):
        schema.upgrade(other, release=older)
    assert schema.verify(small, release=older) == []


def test_open_transaction_with_a_snapshot_is_refused(empty_database: str, older: Release) -> None:
    with psycopg.connect(empty_database) as mine:
        mine.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        mine.execute("select 1")
        with pytest.raises(InvalidTransactionError, match="repeatable read"):
            schema.install(mine, release=older)


# The real one.


def test_real_schema_installs_verifies_and_goes(session: Connection) -> None:
    assert schema.install(session).functions_applied
    assert schema.verify(session) == []
    assert one(session, "select spanmq.version()") == load_release().version
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.create_unlogged('quick')")
    session.execute("select pgmq.send('orders', '{}')")
    assert schema.upgrade(session).functions_applied
    assert schema.verify(session) == []
    with pytest.raises(DataLossError, match="queue orders with 1 messages"):
        schema.uninstall(session)
    session.execute(
        "select * from spanmq.receive('orders') r, spanmq.reject('orders', r.lease_id, array[r.msg_id])"
    )
    with pytest.raises(DataLossError, match="queue orders with 1 dead letters"):
        schema.uninstall(session)
    session.execute("select pgmq.drop_queue('orders')")
    # A grant on a queue makes functions for it, which are no loss; the user's own is one, whatever its name.
    session.execute("select spanmq.grant_queue('public', 'quick', 'receive')")
    for own in ("own_1", "ack_1"):
        session.execute(
            f"create function spanmq_call.{own}() returns int language sql as 'select 1'".encode()
        )
    session.execute("create table spanmq.release_notes (n int); create table pgmq.q_report (n int)")
    with pytest.raises(DataLossError) as caught:
        schema.uninstall(session)
    assert caught.value.detail == (
        "your own function spanmq_call.ack_1(), your own function spanmq_call.own_1(),"
        " your own table spanmq.release_notes, your own table pgmq.q_report"
    )
    session.execute("drop function spanmq_call.own_1, spanmq_call.ack_1()")
    session.execute("drop table spanmq.release_notes, pgmq.q_report")
    schema.uninstall(session)
    assert schema.state(session).holding is schema.Holding.NOTHING


def test_real_schema_needs_no_right_on_the_database(
    session: Connection, empty_database: str, role: str
) -> None:
    for schema_name in SCHEMAS:
        session.execute(f"create schema {schema_name} authorization {role}".encode())
    with session_of(empty_database, role) as owner:
        schema.install(owner)
        assert schema.verify(owner) == []
        assert one(owner, "select pgmq.create('orders')") == ""
        assert one(owner, "select pgmq.send('orders', '{}')") == 1
        assert schema.upgrade(owner).functions_applied


def test_real_script_makes_the_real_schema(session: Connection) -> None:
    session.execute(schema.sql().encode())
    assert schema.verify(session) == []
    assert schema.install(session).functions_applied is False


def test_real_upgrade_under_load_gives_no_errors(empty_database: str, session: Connection) -> None:
    schema.install(session)
    session.execute("select pgmq.create('busy')")
    stop = threading.Event()
    rounds = [0, 0]

    def work(which: int) -> None:
        with psycopg.connect(empty_database, autocommit=True) as mine:
            while not stop.is_set():
                mine.execute("select pgmq.send('busy', '{}')")
                mine.execute("select pgmq.delete('busy', array(select msg_id from pgmq.read('busy', 30, 5)))")
                rounds[which] += 1

    with ThreadPoolExecutor(2) as threads:
        workers = [threads.submit(work, which) for which in range(2)]
        try:
            for _ in range(5):
                done = list(rounds)
                schema.upgrade(session)
                wait_until(
                    lambda done=done: (
                        any(worker.done() for worker in workers)  # type: ignore[misc]
                        or all(now > before for now, before in zip(rounds, done, strict=True))
                    )
                )
        finally:
            stop.set()
    assert [worker.result() for worker in workers] == [None, None]
