"""What a take-over refuses, what it leaves alone, and that a failure anywhere changes nothing."""

from typing import Any

import pytest
from tests.sql.queue import Connection, one, rows
from tests.sql.schema.upstream import fill, make_partitioned, messages, relations

from spanmq import schema
from spanmq.errors import NotPossibleError, ServerError
from spanmq.schema.adopt import Obstacle, adopt
from spanmq.schema.release import Release, Statement, load_release

LONG_IN_BYTES = "ü" * 24
# What is done to a database, which object is named, and a part of the reason.
OBSTACLES = [
    ("alter table pgmq.q_orders enable row level security", "table pgmq.q_orders", "row-level security"),
    ("create policy p on pgmq.q_orders using (true)", "table pgmq.q_orders", "row-level security"),
    (
        "create trigger mine after insert on pgmq.q_orders execute function pgmq.notify_queue_listeners()",
        "trigger mine on pgmq.q_orders",
        "drop it",
    ),
    ("alter table pgmq.q_orders add note text", "column note of pgmq.q_orders", "no columns of yours"),
    ("alter table pgmq.q_orders alter message type text", "table pgmq.q_orders", "column message is missing"),
    ("alter table pgmq.q_orders alter headers type text", "table pgmq.q_orders", "column headers is missing"),
    (
        "alter table pgmq.q_orders add constraint c check (msg_id > 0)",
        "constraint c on pgmq.q_orders",
        "drop it",
    ),
    ("create rule r as on insert to pgmq.q_orders do also notify x", "rule r on pgmq.q_orders", "drop it"),
    (
        "create table public.t (msg_id bigint not null); alter table pgmq.q_orders inherit public.t",
        "table pgmq.q_orders",
        "inherits from public.t",
    ),
    (
        "drop table pgmq.a_orders; create view pgmq.a_orders as select 1 as msg_id",
        "view pgmq.a_orders",
        "queue 'orders' has no table",
    ),
    ("create publication p for table pgmq.q_orders", "publication p", "pgmq.q_orders is in it"),
    ("create view public.v as select * from pgmq.q_orders", "view public.v", "on table pgmq.q_orders"),
    ("create view public.v as select * from pgmq.meta", "view public.v", "on table pgmq.meta"),
    (
        "create view pgmq.v as select pgmq.validate_routing_key('a')",
        "view pgmq.v",
        "on function pgmq.validate_routing_key",
    ),
    ("create table public.t (m pgmq.message_record)", "table public.t", "on type pgmq.message_record"),
    ("create table public.t (m pgmq.q_orders)", "table public.t", "on type pgmq.q_orders"),
    (
        "create function public.f(pgmq.message_record) returns int language sql as 'select 1'",
        "function public.f(pgmq.message_record)",
        "on type pgmq.message_record",
    ),
    (
        "create table public.t (id bigint references pgmq.q_orders)",
        "constraint t_id_fkey on table public.t",
        "pgmq.q_orders",
    ),
    ("create table public.t () inherits (pgmq.q_orders)", "table public.t", "inherits from pgmq.q_orders"),
    (
        "create table public.t (ok bool default pgmq.validate_routing_key('a'))",
        "default value for column ok of table public.t",
        "on function pgmq.validate_routing_key",
    ),
    ("create schema spanmq_core; create table spanmq_core.t ()", "schema spanmq_core", "rename it"),
    ("select pgmq.create('')", "queue ''", "empty"),
    (f"select pgmq.create('{LONG_IN_BYTES}')", f"queue '{LONG_IN_BYTES}'", "longer than 47 bytes"),
    (
        "insert into pgmq.q_orders (msg_id, vt) overriding system value values (-7, now())",
        "table pgmq.q_orders",
        "ids below 0, from -7 on",
    ),
]


def test_obstacle_is_named_and_nothing_is_changed(filled: Connection) -> None:
    for statement, named, reason in OBSTACLES:
        with filled.transaction(force_rollback=True):
            filled.execute(statement.encode())
            tables = relations(filled)
            count = one(filled, "select count(*) from pgmq.q_orders")
            (obstacle,) = adopt(filled, dry_run=True).obstacles
            assert (named in obstacle.object, reason in obstacle.reason) == (True, True), statement
            with pytest.raises(NotPossibleError) as caught:
                adopt(filled)
            assert caught.value.detail == f"{obstacle.object}: {obstacle.reason}"
            assert relations(filled) == tables
            assert one(filled, "select count(*) from pgmq.q_orders") == count


@pytest.mark.parametrize("dry_run", [True, False])
def test_own_schema_of_the_name_that_a_take_over_needs_is_named_and_stays(
    upstream: Connection, dry_run: bool
) -> None:
    upstream.execute("create schema spanmq_adopt create table mine ()")
    with pytest.raises(NotPossibleError, match="schema spanmq_adopt exists"):
        adopt(upstream, dry_run=dry_run)
    assert one(upstream, "select to_regclass('spanmq_adopt.mine') is not null")


def test_all_obstacles_are_named_at_once_and_go_one_by_one(filled: Connection) -> None:
    filled.execute("create view public.v as select * from pgmq.q_orders")
    filled.execute("alter table pgmq.q_orders add column note text")
    with pytest.raises(NotPossibleError, match="2 obstacles"):
        adopt(filled)
    filled.execute("drop view public.v; alter table pgmq.q_orders drop column note")
    assert adopt(filled).messages == 44


def test_repeated_ids_are_an_obstacle(upstream: Connection) -> None:
    make_partitioned(upstream)
    upstream.execute("insert into pgmq.q_parts (msg_id, vt) select n, now() from unnest(array[1, 1, 7]) n")
    obstacles = adopt(upstream, dry_run=True).obstacles
    assert obstacles == (Obstacle("table pgmq.q_parts", "3 of its messages have an id that another has too"),)


def test_own_objects_stay(filled: Connection) -> None:
    filled.execute("create table pgmq.mine (id int primary key); insert into pgmq.mine values (1)")
    filled.execute("create function pgmq.own(text) returns int language sql as 'select 7'")
    filled.execute("create function pgmq.send(text, int) returns int language sql as 'select 8'")
    filled.execute("create view pgmq.archived as select * from pgmq.a_orders")
    filled.execute("create sequence pgmq.counter; create type pgmq.kind as enum ('a')")
    filled.execute("create table pgmq.q_loose (id int)")
    report = adopt(filled)
    assert report.kept == (
        "function pgmq.own(text)",
        "function pgmq.send(text,integer)",
        "sequence pgmq.counter",
        "table pgmq.mine",
        "table pgmq.q_loose",
        "type pgmq.kind",
        "view pgmq.archived",
    )
    assert rows(filled, "select id from pgmq.mine") == [(1,)]
    assert one(filled, "select pgmq.own('x') + pgmq.send('x', 1)") == 15
    assert one(filled, "select count(*) from pgmq.archived") == 3
    assert one(filled, "select 'a'::pgmq.kind::text") == "a"
    assert schema.verify(filled) == []


def test_own_index_is_noted(filled: Connection) -> None:
    filled.execute("select pgmq.create_fifo_index('orders'); create index mine on pgmq.q_orders (read_ct)")
    assert adopt(filled).queues[0].notes == (
        "drops your index pgmq.mine: use dedup_id in place of a unique one, a queue of its own for what you search",
    )


def test_publications_of_more_than_the_queue_are_noted(upstream: Connection) -> None:
    upstream.execute("select pgmq.create('orders')")
    upstream.execute(
        "create publication whole for all tables; create publication part for tables in schema pgmq"
    )
    assert adopt(upstream).queues[0].notes == (
        "publication part no longer has its messages",
        "publication whole no longer has its messages",
    )


def failing(step: str) -> Release:
    release = load_release()
    bad = Statement("functions/zz.sql", f"do $$ begin raise exception 'fails {step}'; end $$;")
    functions = (bad, *release.functions) if step == "early" else (*release.functions, bad)
    return Release(release.version, release.migrations, functions, "x")


@pytest.mark.parametrize("step", ["early", "late"])
def test_failure_in_the_middle_leaves_everything_as_it_was(filled: Connection, step: str) -> None:
    filled.execute("select pgmq.bind_topic('a', 'orders'); select pgmq.enable_notify_insert('orders')")
    before, tables, functions = messages(filled, "orders"), relations(filled), all_functions(filled)
    with pytest.raises(ServerError, match=f"fails {step}"):
        adopt(filled, release=failing(step))
    assert (messages(filled, "orders"), relations(filled)) == (before, tables)
    assert all_functions(filled) == functions
    assert one(filled, "select pgmq.send_topic('a', '{}')") == 1


def test_failure_at_the_last_queue_leaves_everything_as_it_was(upstream: Connection) -> None:
    for name in ("aaa", "bbb"):
        fill(upstream, name)
    # Ours has no message beyond what a year of bigint can hold: the log refuses the block after this one.
    upstream.execute("alter sequence pgmq.q_bbb_msg_id_seq restart 9223372036854775807")
    upstream.execute("select pgmq.send('bbb', '{}')")
    before, tables, functions = messages(upstream, "bbb"), relations(upstream), all_functions(upstream)
    with pytest.raises(Exception, match="out of range"):
        adopt(upstream)
    assert (messages(upstream, "bbb"), relations(upstream)) == (before, tables)
    assert all_functions(upstream) == functions


def all_functions(session: Connection) -> list[Any]:
    return rows(
        session,
        "select oid, proname, prosrc from pg_proc where pronamespace = 'pgmq'::regnamespace order by 1",
    )
