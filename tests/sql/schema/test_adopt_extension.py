"""Taking over upstream PGMQ where it is an extension, of this and of older versions, with pg_partman."""

from pathlib import Path

import pytest
from tests.sql.queue import Connection, one, rows
from tests.sql.schema.extension_files import open_to_server, write_upstream
from tests.sql.schema.upstream import fill, make_partitioned, messages

from spanmq import schema
from spanmq.errors import NotPossibleError
from spanmq.schema.adopt import adopt

# What adoption touches of pg_partman, which is not here: the table of its settings.
PARTMAN = """
create table part_config (
    parent_table text primary key, partition_interval text not null, retention text, template_table text);
insert into part_config values
    ('pgmq.q_parts', '5', '10', '@extschema@.template_pgmq_q_parts'), ('pgmq.a_parts', '5', '10', null),
    ('pgmq.q_orders', '5', '10', 'public.template'), ('pgmq.a_orders', '5', '30 days', null),
    ('public.other', '5', '10', null);
"""

WORDS = """
create function first_letter(text) returns text language sql immutable as 'select left($1, 1)';
create function chance() returns float language sql as 'select random()';
create domain word as text check (value ~ '^[a-z]*$');
"""

# None without the extension.
MEMBERS = """
    select (select count(*) from pg_depend d
            where d.refclassid = 'pg_extension'::regclass and d.refobjid = e.oid)
    from pg_extension e where e.extname = 'pgmq'
"""


@pytest.fixture
def extended(session: Connection, server_folder: Path) -> Connection:
    """Return a session on a database with PGMQ as an extension, which the server finds in a folder of ours."""
    if session.info.server_version < 180000:
        pytest.skip("before PostgreSQL 18 extensions lie in the server's own folder")
    write_upstream(server_folder)
    for name, script in {"pg_partman": PARTMAN, "words": WORDS}.items():
        (server_folder / f"extension/{name}.control").write_text(
            "default_version = '1.13.0'\nrelocatable = false\n"
        )
        (server_folder / f"extension/{name}--1.13.0.sql").write_text(script)
    open_to_server(server_folder)
    session.execute(
        "select set_config('extension_control_path', %s || ':$system', false)", [str(server_folder)]
    )
    session.execute("create extension pgmq")
    return session


def test_extension_goes_and_its_queues_stay(extended: Connection) -> None:
    fill(extended, "orders")
    extended.execute("select pgmq.create_unlogged('quick')")
    extended.execute("select pgmq.bind_topic('a', 'orders'); select pgmq.enable_notify_insert('orders', 9)")
    extended.execute("create table pgmq.mine (id int)")
    before = messages(extended, "orders")
    told = adopt(extended, dry_run=True)
    assert one(extended, "select count(*) from pg_extension where extname = 'pgmq'") == 1
    done = adopt(extended)
    assert (told.queues, told.kept) == (done.queues, done.kept)
    assert (done.holding, done.version) == (schema.Holding.UPSTREAM_EXTENSION, "1.13.0")
    assert [(queue.queue, queue.messages) for queue in done.queues] == [("orders", 44), ("quick", 0)]
    assert done.kept == ("table pgmq.mine",)
    assert messages(extended, "orders") == before
    assert one(extended, MEMBERS) == 0, "the extension is kept as a name"
    extended.execute("create extension if not exists pgmq cascade; drop extension pgmq cascade")
    assert one(extended, "select count(*) from pgmq.a_orders") == 3
    assert one(extended, "select pgmq.send_topic('a', '{}')") == 1
    assert one(extended, "select pgmq.send('orders', '{}')") == 62
    assert schema.verify(extended) == []


def test_tables_that_are_members_of_the_extension_stay(extended: Connection) -> None:
    fill(extended, "orders")
    # The shape of 1.4: each queue's tables are members; no topics, throttles, headers or last_read_at.
    extended.execute("""
        alter extension pgmq drop table pgmq.topic_bindings;
        alter extension pgmq drop table pgmq.notify_insert_throttle;
        drop table pgmq.topic_bindings, pgmq.notify_insert_throttle;
        alter table pgmq.q_orders drop headers, drop last_read_at;
        alter table pgmq.a_orders drop headers, drop last_read_at;
        create table pgmq.a_orders_old (msg_id bigint);
        alter extension pgmq add table pgmq.q_orders;
        alter extension pgmq add table pgmq.a_orders;
        alter extension pgmq add table pgmq.a_orders_old""")
    look = "select msg_id, read_ct, enqueued_at, message from pgmq.q_orders order by 1"
    before = rows(extended, look)
    archived = rows(extended, "select msg_id from pgmq.a_orders order by 1")
    report = adopt(extended)
    assert rows(extended, look) == before
    assert rows(extended, "select msg_id from pgmq.a_orders order by 1") == archived
    assert report.kept == ("table pgmq.a_orders_old",)
    assert one(extended, "select count(*) from pgmq.a_orders_old") == 0
    assert schema.verify(extended) == []


def test_failure_brings_the_extension_back(extended: Connection) -> None:
    fill(extended, "orders")
    before = messages(extended, "orders")
    extended.execute(
        "create function public.refuse() returns event_trigger language plpgsql as $$ begin"
        " if exists (select from pg_event_trigger_ddl_commands() c where c.object_identity = 'spanmq_core.queue') then"
        " raise exception 'refused'; end if; end $$;"
        " create event trigger refuse on ddl_command_end execute function public.refuse()"
    )
    with pytest.raises(Exception, match="refused"):
        adopt(extended)
    assert messages(extended, "orders") == before
    extension = "(select oid from pg_extension where extname = 'pgmq')"
    assert one(extended, f"select count(*) > 50 from pg_depend where refobjid = {extension}") is True
    assert one(extended, "select pgmq.send('orders', '{}')") == 61


def test_extension_that_needs_it_is_an_obstacle(extended: Connection, server_folder: Path) -> None:
    (server_folder / "extension/dependent.control").write_text("default_version = '1'\nrequires = 'pgmq'\n")
    (server_folder / "extension/dependent--1.sql").write_text("create table public.of_dependent (id int);")
    extended.execute("create extension dependent")
    with pytest.raises(NotPossibleError) as caught:
        adopt(extended)
    assert "extension dependent: depends on extension pgmq" in (caught.value.detail or "")


def test_partitioned_queue_leaves_pg_partman(extended: Connection) -> None:
    extended.execute("create schema partman; create extension pg_partman schema partman")
    extended.execute(
        "create table partman.template_pgmq_q_parts (id int); create table public.template (id int)"
    )
    make_partitioned(extended)
    fill(extended, "orders")
    before = messages(extended, "parts")
    adopt(extended)
    assert messages(extended, "parts") == before
    assert rows(extended, "select parent_table from partman.part_config order by 1") == [
        ("pgmq.a_orders",),
        ("pgmq.a_parts",),
        ("public.other",),
    ]
    assert one(extended, "select to_regclass('partman.template_pgmq_q_parts')") is None
    assert one(extended, "select to_regclass('public.template')") == "template"
    # Of an archive that is one table we keep the retention; a partitioned one is pg_partman's.
    kept = rows(
        extended, "select name, retention_count, retention_interval::text from spanmq_core.queue order by 1"
    )
    assert kept == [("orders", None, "30 days"), ("parts", None, None)]


def test_archive_may_use_what_computes_of_an_extension_that_a_superuser_installed(
    extended: Connection, role: str
) -> None:
    fill(extended, "orders")
    extended.execute("create extension words schema public")
    extended.execute(
        "alter table pgmq.a_orders add kind word default 'a';"
        " create index on pgmq.a_orders (first_letter(message ->> 'a'))"
    )
    assert adopt(extended, dry_run=True).obstacles == ()
    extended.execute("alter table pgmq.a_orders add luck float default public.chance()")
    (obstacle,) = adopt(extended, dry_run=True).obstacles
    assert obstacle.reason == "it calls public.chance(), which is not immutable: drop it"
    extended.execute("alter table pgmq.a_orders drop luck")
    # As if a role without special rights had installed it.
    extended.execute("update pg_extension set extowner = %s::regrole where extname = 'words'", [role])
    try:
        assert {each.object for each in adopt(extended, dry_run=True).obstacles} == {
            "column kind of table pgmq.a_orders",
            "default value for column kind of table pgmq.a_orders",
            "index pgmq.a_orders_first_letter_idx",
        }
    finally:
        extended.execute("update pg_extension set extowner = 10 where extname = 'words'")
