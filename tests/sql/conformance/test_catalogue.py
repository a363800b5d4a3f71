"""The catalogue of schema pgmq: every function, type, table and view of PGMQ is here, in its shape."""

import pytest
from tests.sql.conformance.conftest import Pair
from tests.sql.queue import Connection, column, one, rows

# PGMQ's private functions. Nothing but its own SQL calls them.
NOT_OFFERED = {
    "_belongs_to_pgmq",
    "_create_fifo_index_if_not_exists",
    "_ensure_pg_partman_installed",
    "_extension_exists",
    "_get_partition_col",
    "_get_pg_partman_major_version",
    "_get_pg_partman_schema",
    "_send_batch",
    "_validate_batch_params",
}
# PGMQ says volatile, but these look at nothing but their arguments.
IMMUTABLE_HERE = {"format_table_name", "validate_queue_name"}

FUNCTIONS = """
    select p.proname, pg_get_function_identity_arguments(p.oid), pg_get_function_arguments(p.oid),
           pg_get_function_result(p.oid), p.prokind, p.proisstrict, p.proparallel, p.provolatile
    from pg_proc p where p.pronamespace = 'pgmq'::regnamespace
"""
ATTRIBUTES = """
    select a.attname, format_type(a.atttypid, a.atttypmod)
    from pg_attribute a
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
DETAILS = """
    select a.attname, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)
    from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""
CONSTRAINTS = """
    select c.conname, c.contype, pg_get_constraintdef(c.oid) from pg_constraint c
    where c.conrelid = %s::regclass and c.contype in ('u', 'p') order by c.conname
"""


def functions(connection: Connection) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return arguments, result and kind, and last the volatility, by name and types of arguments."""
    return {row[:2]: row[2:] for row in rows(connection, FUNCTIONS)}


def test_every_function_is_here_with_its_arguments_defaults_and_results_and_no_other(pair: Pair) -> None:
    upstream, here = functions(pair.upstream), functions(pair.here)
    offered = {key: shape for key, shape in upstream.items() if key[0] not in NOT_OFFERED}
    assert len(offered) > 60
    # Another could make a call ambiguous.
    assert here.keys() == offered.keys()
    assert {key: shape[:-1] for key, shape in here.items()} == {
        key: shape[:-1] for key, shape in offered.items()
    }
    assert {name for name, _ in upstream} - {name for name, _ in here} == NOT_OFFERED
    assert {key[0] for key, shape in here.items() if shape != offered[key]} == IMMUTABLE_HERE


@pytest.mark.parametrize("name", ["message_record", "queue_record", "metrics_result"])
def test_types_have_the_same_fields_in_the_same_order(name: str, pair: Pair) -> None:
    upstream = rows(pair.upstream, ATTRIBUTES, f"pgmq.{name}")
    assert upstream
    assert rows(pair.here, ATTRIBUTES, f"pgmq.{name}") == upstream


def test_no_type_is_added(pair: Pair) -> None:
    query = """select t.typname from pg_type t join pg_class c on c.oid = t.typrelid
               where t.typnamespace = 'pgmq'::regnamespace and c.relkind = 'c'"""
    assert sorted(column(pair.here, query)) == sorted(column(pair.upstream, query))


@pytest.mark.parametrize("create", ["create", "create_unlogged"])
def test_tables_and_views_have_the_same_columns_in_the_same_order(create: str, pair: Pair) -> None:
    for connection in (pair.upstream, pair.here):
        connection.execute(f"select pgmq.{create}('orders')".encode())
    for name in ("meta", "topic_bindings", "notify_insert_throttle", "q_orders", "a_orders"):
        upstream = rows(pair.upstream, ATTRIBUTES, f"pgmq.{name}")
        assert upstream
        assert rows(pair.here, ATTRIBUTES, f"pgmq.{name}") == upstream, name


def test_archive_has_the_same_defaults_and_keys(pair: Pair) -> None:
    for connection in (pair.upstream, pair.here):
        connection.execute("select pgmq.create('orders')")
    for query in (DETAILS, CONSTRAINTS):
        upstream = rows(pair.upstream, query, "pgmq.a_orders")
        assert upstream
        assert rows(pair.here, query, "pgmq.a_orders") == upstream


def test_monitors_may_look_as_in_pgmq(pair: Pair) -> None:
    for connection in (pair.upstream, pair.here):
        connection.execute("select pgmq.create('orders')")
        for name in ("meta", "topic_bindings", "notify_insert_throttle", "q_orders", "a_orders"):
            assert one(
                connection, "select has_table_privilege('pg_monitor', %s, 'select')", f"pgmq.{name}"
            ), name
        ids = "select has_sequence_privilege('pg_monitor', 'pgmq.q_orders_msg_id_seq', 'select')"
        assert one(connection, ids)


# What PGMQ does only with pg_partman, so that no scenario can compare it.
NAMED = [
    """select pgmq.create_partitioned(
           queue_name => 'p', partition_interval => '1000', retention_interval => '5000', premake => 2)""",
    """select pgmq.convert_archive_partitioned(
           table_name => 'p', partition_interval => '1000', retention_interval => '5000',
           leading_partition => 3)""",
]


@pytest.mark.parametrize("call", NAMED)
def test_partitioned_queues_take_named_arguments(call: str, pair: Pair) -> None:
    pair.here.execute("set client_min_messages = error")
    pair.here.execute("select pgmq.create('p')")
    pair.here.execute(call.encode())
