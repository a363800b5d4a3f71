"""What a call touches, as the database counts it: pages, rows, and entries of indexes. No clock is read."""

import json
from typing import Any

import psycopg

Connection = psycopg.Connection[Any]
# Of all indexes of the tables of runs whose names are like a pattern.
ENTRIES = """
select coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0)::bigint from pg_index
where indrelid in ('spanmq.fresh'::regclass, 'spanmq.held'::regclass, 'spanmq.done'::regclass)
  and indexrelid::regclass::text like %s
"""


def pages_touched(connection: Connection, query: str) -> int:
    """Return how many pages a query looks at, all its inner statements included. What it did is rolled back.

    The least of three: the first one also reads catalogues.
    """
    counts: list[int] = []
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            row = connection.execute(b"explain (analyze, buffers, format json) " + query.encode()).fetchone()
        assert row is not None
        plan = (row[0] if isinstance(row[0], list) else json.loads(row[0]))[0]["Plan"]
        counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] + plan["Local Hit Blocks"])
    return min(counts)


def entries_passed(connection: Connection, query: str, index: str = "%", *, stays: bool = False) -> int:
    """Return how many index entries of the tables of runs a call looks at, dead or alive."""
    counts: list[int] = []
    with connection.transaction(force_rollback=not stays):
        for text in ("select", query):
            connection.execute(text.encode())
            row = connection.execute(ENTRIES, [f"%{index}"]).fetchone()
            assert row is not None
            counts.append(int(row[0]))
    return counts[1] - counts[0]
