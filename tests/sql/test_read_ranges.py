"""Ranges of ids for tasks: of about as many rows each, and of no more bytes than a task should hold."""

import pytest
from tests.sql.queue import Connection, rows

RANGES = "select * from spanmq.read_ranges('orders', %s, 250000)"
# Text that PostgreSQL can't compress.
LARGE = "(select to_jsonb(string_agg(md5(i::text), '')) from generate_series(1, 150000) i)"


@pytest.mark.parametrize("table", ["queue", "archive"])
def test_large_messages_are_cut_into_more_ranges(connection: Connection, table: str) -> None:
    connection.execute("select pgmq.create('orders')")
    connection.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[1000]))")
    if table == "archive":
        connection.execute("select pgmq.archive('orders', array(select generate_series(1, 1000)))")
    assert rows(connection, RANGES, table) == [(1, 1000)]
    connection.execute(f"select pgmq.send_batch('orders', array_fill({LARGE}, array[60]))")
    if table == "archive":
        connection.execute("select pgmq.archive('orders', array(select generate_series(1001, 1060)))")
    found = rows(connection, RANGES, table)
    assert len(found) > 1
    assert found[0][0] == 1
    assert found[-1][1] == 1060
    assert [low for low, _ in found[1:]] == [high + 1 for _, high in found[:-1]]
