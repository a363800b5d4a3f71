"""What a call touches, as the database counts it: pages, rows, and entries of indexes. No clock is read."""

from tests.sql.queue import Connection, one

# The unsettled messages of all queues, and the bounds of the queues.
TABLES = ["spanmq_core.state", "spanmq_core.later", "spanmq_core.bound"]
INDEXES = """
select indexrelid::regclass::text, pg_stat_get_xact_numscans(indexrelid),
    pg_stat_get_xact_tuples_returned(indexrelid)
from pg_index where indrelid = any (%(tables)s::regclass[])
union all
select 'all of ' || o::regclass, pg_stat_get_xact_numscans(o), 0 from unnest(%(tables)s::regclass[]) o
"""


WRITTEN = """
select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int from pg_stat_xact_user_tables
where schemaname in ('pgmq', 'spanmq_core')
"""


def begin_alike(connection: Connection) -> None:
    """Make the server's random numbers repeatable: the first claim of groups in a session begins at a random group."""
    connection.execute("select setseed(0.5)")


def pages_touched(connection: Connection, query: str) -> int:
    """Return how many pages a query looks at, all its inner statements included. What it did is rolled back.

    The least of three: the first one also reads catalogues.
    """
    counts: list[int] = []
    for _ in range(3):
        with connection.transaction(force_rollback=True):
            begin_alike(connection)
            plan = one(connection, f"explain (analyze, buffers, format json) {query}")[0]["Plan"]
        counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] + plan["Local Hit Blocks"])
    return min(counts)


def indexes_used(connection: Connection, query: str) -> dict[str, int]:
    """Return the indexes that a call scans, and how many of their entries, dead or alive; it is rolled back.

    A table that is scanned from end to end is among them.
    """
    counts = []
    with connection.transaction(force_rollback=True):
        begin_alike(connection)
        for text in ("select", query):
            connection.execute(text.encode())
            rows = connection.execute(INDEXES, {"tables": TABLES}).fetchall()
            counts.append(
                {name.removeprefix("spanmq_core."): (scans, entries) for name, scans, entries in rows}
            )
    before, after = counts
    return {name: after[name][1] - before[name][1] for name in after if after[name][0] > before[name][0]}


def entries_passed(connection: Connection, query: str) -> int:
    """Return how many entries of indexes a call looks at."""
    return sum(indexes_used(connection, query).values())


def rows_written(connection: Connection, query: str) -> int:
    """Return how many rows of our own tables a call writes; it is rolled back."""
    counts: list[int] = []
    with connection.transaction(force_rollback=True):
        begin_alike(connection)
        for text in ("select", query):
            connection.execute(text.encode())
            counts.append(one(connection, WRITTEN))
    return counts[1] - counts[0]
