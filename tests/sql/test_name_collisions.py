"""Of two queues one has the name of what belongs to the other: the second is refused, nothing is made."""

from typing import Any

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection

# 47 bytes: the name of the index on its archive is cut.
LONG = "l" * 47
PAIRS = (
    ("x", "x_msg_id_seq"),
    ("x_msg_id_seq", "x"),
    ("X", "x_Archived_at_idx"),
    ("x_archived_at_idx", "X"),
    ("x", "x_pkey"),
)
RELATIONS = (
    "select relname from pg_class"
    " where relnamespace in ('spanmq_core'::regnamespace, 'pgmq'::regnamespace) order by 1"
)
KINDS = (
    "create('{}')",
    "create_unlogged('{}')",
    "create_partitioned('{}')",
    "create_subscription('{}', 'log')",
)
OTHERS = ("table pgmq.q_x (n int)", "table pgmq.q_x_msg_id_seq (n int)", "view pgmq.a_x as select 1")


def names(connection: Connection) -> list[Any]:
    return connection.execute(RELATIONS.encode()).fetchall()


def refused(connection: Connection, call: str) -> None:
    before = names(connection)
    with pytest.raises(psycopg.Error, match="can't be made: there is") as raised, connection.transaction():
        connection.execute(f"select {qualified(call)}".encode())
    assert raised.value.sqlstate == "P0001"
    assert names(connection) == before


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("kind", KINDS)
def test_second_queue_is_refused(connection: Connection, kind: str, first: str, second: str) -> None:
    connection.execute("select pgmq.create('log')")
    connection.execute(f"select pgmq.create('{first}')".encode())
    if kind.startswith("create_subscription") and (first, second) == ("x_msg_id_seq", "x"):
        # It has no sequence of its own.
        connection.execute(f"select {qualified(kind.format(second))}".encode())
    else:
        refused(connection, kind.format(second))
    connection.execute("select pgmq.drop_queue(%s)", [first])
    connection.execute("select pgmq.create(%s)", [second])


@pytest.mark.parametrize("made", OTHERS)
def test_what_is_no_queue_is_in_the_way_too(connection: Connection, made: str) -> None:
    connection.execute(f"create {made}".encode())
    refused(connection, "create('x')")


def test_archive_that_is_there_keeps_its_index(connection: Connection) -> None:
    connection.execute(
        "create table pgmq.a_x (msg_id bigint, read_ct int, enqueued_at timestamptz,"
        " last_read_at timestamptz, archived_at timestamptz default now(),"
        " vt timestamptz, message jsonb, headers jsonb)"
    )
    connection.execute("create index a_x_archived_at_idx on pgmq.a_x (archived_at)")
    connection.execute("select pgmq.create('x'), pgmq.send('x', '1'), pgmq.archive('x', 1)")


def test_longest_names_have_an_index_each(connection: Connection) -> None:
    for name in (LONG, LONG[:-1] + "m"):
        connection.execute("select pgmq.create(%s)", [name])
        indexes = connection.execute("select from pg_index where indrelid = %s::regclass", [f"pgmq.a_{name}"])
        assert len(indexes.fetchall()) == 2
