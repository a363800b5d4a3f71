"""Verify, print, uninstall: on a small schema."""

import subprocess
from pathlib import Path

import psycopg
import pytest
from tests.sql.queue import Connection, one
from tests.sql.schema.conftest import snapshot

from spanmq import schema
from spanmq.errors import DataLossError
from spanmq.schema.release import Release, load_release

# Verifying.


def differences(session: Connection, release: Release) -> list[tuple[str, str, str]]:
    return [
        (difference.kind, difference.name, difference.problem)
        for difference in schema.verify(session, release=release)
    ]


MADE = ("function", "spanmq.made(queue_name text)")
ITEM = ("table", "spanmq.item")
CHANGED_BODY = (
    "create or replace function spanmq.made(queue_name text) returns void language sql as 'select null'"
)
CHANGED_VIEW = "create or replace view pgmq.meta as select upper(name) as queue_name from spanmq_core.queue"
ADDED_TRIGGER = """
create function pg_temp.keep() returns trigger language plpgsql as 'begin return new; end';
create trigger keep before insert on spanmq.item execute function pg_temp.keep()"""


DAMAGES = [
    ("drop function spanmq.made(text)", MADE, "missing"),
    (CHANGED_BODY.replace("null", "null::void -- x"), MADE, "changed"),
    ("alter function spanmq.made(text) security definer", MADE, "changed"),
    ("alter function spanmq.made(text) set work_mem = '1MB'", MADE, "changed"),
    ("drop index spanmq.item_ready", ITEM, "changed"),
    ("drop index spanmq.item_ready; create index item_ready on spanmq.item (lo)", ITEM, "changed"),
    ("alter table spanmq.item add column more int", ITEM, "changed"),
    ("alter table spanmq.item alter n drop not null", ITEM, "changed"),
    ("alter table spanmq.item set unlogged", ITEM, "changed"),
    ("alter table spanmq.item drop constraint item_queue_id_fkey", ITEM, "changed"),
    (ADDED_TRIGGER, ITEM, "changed"),
    ("alter type pgmq.message_record add attribute more int", ("type", "pgmq.message_record"), "changed"),
    (CHANGED_VIEW, ("view text", "pgmq.meta"), "changed"),
    (
        "alter sequence spanmq_core.queue_queue_id_seq cycle",
        ("sequence", "spanmq_core.queue_queue_id_seq"),
        "changed",
    ),
    ("update spanmq_core.migration set checksum = 'x'", ("migration", "0001_core.sql"), "changed"),
    ("delete from spanmq_core.migration", ("migration", "0001_core.sql"), "missing"),
]


def test_verify_finds(small: Connection, older: Release) -> None:
    for damage, what, problem in DAMAGES:
        with small.transaction(force_rollback=True):
            small.execute(damage.encode())
            assert differences(small, older) == [(*what, problem)], damage


def test_verify_finds_a_wrong_owner(small: Connection, older: Release, role: str) -> None:
    small.execute("create table spanmq_core.log_1_1 (id int)")
    for what in (
        "function spanmq.made(text)",
        "table spanmq.item",
        "table spanmq_core.log_1_1",
        "type pgmq.message_record",
    ):
        small.execute(f"alter {what} owner to {role}".encode())
    assert differences(small, older) == [
        ("function", "spanmq.made(queue_name text)", "owner"),
        ("relation", "spanmq_core.log_1_1", "owner"),
        ("table", "spanmq.item", "owner"),
        ("type", "pgmq.message_record", "owner"),
    ]


def test_verify_finds_an_index_whose_build_failed(small: Connection, older: Release) -> None:
    small.execute("create table spanmq_core.log_1_1 (id int)")
    small.execute("insert into spanmq_core.log_1_1 values (1), (1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        small.execute("create unique index concurrently log_1_1_id on spanmq_core.log_1_1 (id)")
    assert differences(small, older) == [("index", "spanmq_core.log_1_1_id", "invalid")]


def test_verify_of_another_version_or_of_nothing_says_so(
    session: Connection, older: Release, newer: Release
) -> None:
    def problems(release: Release) -> list[tuple[str, str]]:
        return [(kind, problem) for kind, _, problem in differences(session, release)]

    assert [problem for _, problem in problems(older)] == ["missing"]
    schema.install(session, release=older)
    assert problems(newer) == [("migration", "missing"), ("functions", "changed")]
    schema.upgrade(session, release=newer)
    assert problems(older) == [("migration", "unknown"), ("functions", "changed")]


def test_own_objects_in_our_schemas_are_left_alone(session: Connection, older: Release) -> None:
    session.execute("create schema pgmq")
    own = "create or replace function pgmq.own() returns int language sql as 'select 1'"
    session.execute(own.encode())
    schema.install(session, release=older)
    session.execute("create view pgmq.q_orders as select 1 as msg_id")
    session.execute("create table pgmq.a_orders (msg_id bigint)")
    session.execute("create table spanmq_core.log_1_1 (msg_id bigint)")
    schema.upgrade(session, release=older)
    session.execute(own.replace("select 1", "select 2").encode())
    for drop in ("view pgmq.q_orders", "table pgmq.a_orders", "table spanmq_core.log_1_1"):
        session.execute(f"drop {drop}".encode())
    assert schema.verify(session, release=older) == []


def test_objects_of_queues_are_not_compared(small: Connection, folder: Path) -> None:
    made = (
        "create view pgmq.q_orders as select 1 as msg_id; create table spanmq_core.log_1_1 (msg_id bigint);"
    )
    (folder / "tables/0002_rebuilt.sql").write_text(made)
    release = load_release(folder, version="0.2.0")
    schema.upgrade(small, release=release)
    small.execute("drop view pgmq.q_orders; drop table spanmq_core.log_1_1")
    assert schema.verify(small, release=release) == []


def test_verify_changes_nothing_and_works_read_only(
    small: Connection, empty_database: str, older: Release
) -> None:
    with psycopg.connect(empty_database, options="-c default_transaction_read_only=on") as reader:
        assert schema.verify(reader, release=older) == []


# Printing.


def test_script_makes_what_install_makes(session: Connection, older: Release) -> None:
    session.execute(schema.sql(release=older).encode())
    by_script = snapshot(session)
    ledger = (
        "select (select array_agg(row(name, checksum, version)::text) from spanmq_core.migration)"
        " || (select array_agg(row(version, functions_checksum)::text) from spanmq_core.release)"
    )
    recorded = one(session, ledger)
    assert schema.verify(session, release=older) == []
    assert schema.install(session, release=older).functions_applied is False
    schema.uninstall(session, release=older)
    schema.install(session, release=older)
    assert (snapshot(session), one(session, ledger)) == (by_script, recorded)


def test_script_runs_in_psql(empty_database: str, session: Connection, older: Release) -> None:
    ran = subprocess.run(
        ["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", empty_database],
        input=schema.sql(release=older),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("", "")
    assert schema.verify(session, release=older) == []


def test_script_upgrades_from_a_version(session: Connection, older: Release, newer: Release) -> None:
    def is_for_another_state(script: str) -> None:
        with pytest.raises(psycopg.Error, match="printed for another state") as caught:
            session.execute(script.encode())
        assert caught.value.sqlstate == "MQ006"
        session.rollback()

    schema.install(session, release=older)
    is_for_another_state(schema.sql(release=newer))
    session.execute(schema.sql("0.1.0", release=newer).encode())
    assert schema.verify(session, release=newer) == []
    is_for_another_state(schema.sql("0.1.0", release=newer))


def test_script_refuses_upstream(session: Connection, older: Release) -> None:
    session.execute("create schema pgmq")
    session.execute("create table pgmq.meta (queue_name varchar)")
    with pytest.raises(psycopg.Error, match="holds PGMQ") as caught:
        session.execute(schema.sql(release=older).encode())
    assert caught.value.sqlstate == "MQ006"
    assert caught.value.diag.message_hint == "Take its queues over with: spanmq schema adopt"


def test_script_without_transaction_joins_one(session: Connection, older: Release) -> None:
    text = schema.sql(transaction=False, release=older)
    with session.transaction(force_rollback=True):
        session.execute("set local search_path = 'public'")
        session.execute(text.encode())
        assert one(session, "select current_setting('search_path')") == "public"
        assert schema.verify(session, release=older) == []
    assert schema.state(session).holding is schema.Holding.NOTHING


# Uninstalling.


def test_uninstall_drops_everything(small: Connection, older: Release) -> None:
    small.execute("select pgmq.create('empty')")
    schema.uninstall(small, release=older)
    assert schema.state(small).holding is schema.Holding.NOTHING
    assert one(small, "select count(*) from pg_namespace where nspname in ('pgmq', 'spanmq')") == 0
    assert schema.install(small, release=older).functions_applied


LOSSES = [
    (
        "select pgmq.create('orders'); insert into spanmq.item values (1, 1, 7)",
        "queue orders with 7 messages",
    ),
    (
        "create table pgmq.a_orders (msg_id bigint); insert into pgmq.a_orders values (1)",
        "archive pgmq.a_orders",
    ),
    ("create function pgmq.own() returns int language sql as 'select 1'", "your own function pgmq.own()"),
    ("create view public.queues as select * from pgmq.meta", "rule _RETURN on view public.queues"),
    ("create table public.t (m pgmq.message_record)", "table public.t"),
    (
        "create function public.f() returns setof pgmq.meta language sql as 'select null::pgmq.meta'",
        "function public.f()",
    ),
]


def test_uninstall_refuses_to_lose(small: Connection, older: Release) -> None:
    for act, named in LOSSES:
        with small.transaction(force_rollback=True):
            small.execute(act.encode())
            with pytest.raises(DataLossError) as caught:
                schema.uninstall(small, release=older)
            assert named in (caught.value.detail or ""), act
            assert schema.verify(small, release=older) == []
            schema.uninstall(small, force=True, release=older)
            assert schema.state(small).holding is schema.Holding.NOTHING


# Each changes the texts that the catalogs give of what is installed.
SETTINGS = ("quote_all_identifiers = on", "intervalstyle = iso_8601", "search_path = spanmq, pgmq")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("is_before", [True, False])
def test_settings_of_the_session_make_no_difference(
    session: Connection, setting: str, is_before: bool
) -> None:
    asked = "select current_setting(split_part(%s, ' = ', 1))"
    with session.transaction(force_rollback=True):
        if is_before:
            session.execute(f"set local {setting}".encode())
        before = session.execute(asked, [setting]).fetchall()
        schema.install(session)
        assert session.execute(asked, [setting]).fetchall() == before
        session.execute(f"set local {'search_path = public' if is_before else setting}".encode())
        session.execute("set local quote_all_identifiers = off" if is_before else "select")
        session.execute("set local intervalstyle = postgres" if is_before else "select")
        before = session.execute(asked, [setting]).fetchall()
        assert schema.verify(session) == []
        assert session.execute(asked, [setting]).fetchall() == before
