"""Ranges of ids for tasks: of about as many rows each, and of no more bytes than a task should hold."""

import pytest
from tests.sql.queue import Connection, one, rows

RANGES = "select * from spanmq.read_ranges('orders', %s, 250000)"
# 144 MB together: just more than a range may have.
LARGE, COUNT = "to_jsonb(repeat('x', 4800000))", 30


@pytest.mark.parametrize("table", ["queue", "archive"])
def test_large_messages_are_cut_into_more_ranges(connection: Connection, table: str) -> None:
    connection.execute("select pgmq.create('orders')")
    log = one(connection, "select log_name from spanmq_core.segment where lo = 0")
    for each in (f"spanmq_core.{log}", "pgmq.a_orders"):
        # PostgreSQL's compression of as much text takes ten seconds.
        connection.execute(f"alter table {each} alter column message set storage external".encode())
    connection.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[1000]))")
    if table == "archive":
        connection.execute("select pgmq.archive('orders', array(select generate_series(1, 1000)))")
    assert rows(connection, RANGES, table) == [(1, 1000)]
    connection.execute(f"select pgmq.send_batch('orders', array_fill({LARGE}, array[{COUNT}]))")
    last = 1000 + COUNT
    if table == "archive":
        connection.execute(f"select pgmq.archive('orders', array(select generate_series(1001, {last})))")
    found = rows(connection, RANGES, table)
    assert len(found) > 1
    assert found[0][0] == 1
    assert found[-1][1] == last
    assert [low for low, _ in found[1:]] == [high + 1 for _, high in found[:-1]]
