"""Housekeeping beside a snapshot held elsewhere: it looks through what died once only."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.cli.program import wait_until

SETTLED = 20_000
DRAWN = 40_000  # past the first segment
FEW_ENTRIES = 200
PASSED = "select pg_stat_get_xact_tuples_returned(%s::regclass)"


@pytest.fixture
def session(database: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Give a session beside one whose snapshot is older than some single messages, which are all settled."""
    with (
        psycopg.connect(database, autocommit=True) as holder,
        psycopg.connect(database, autocommit=True) as opened,
    ):
        opened.execute("select pgmq.create('jobs')")
        holder.execute("begin isolation level repeatable read")
        holder.execute("select 1")
        opened.execute("select setval(q.ids, %s) from spanmq.queue q", [DRAWN])
        opened.execute(
            "insert into spanmq.span (queue_id, lo, n, state)"
            " select q.queue_id, id, 1, 'r' from spanmq.queue q, generate_series(1, %s) id",
            [SETTLED],
        )
        opened.execute("delete from spanmq.span")
        yield opened


def entries_passed(session: psycopg.Connection[tuple[object, ...]], index: str) -> int:
    """Count the entries of an index, dead or alive, at which a call of maintain() looks."""
    counts: list[int] = []
    with session.transaction():
        for statement in ("select", "select * from pgmq.maintain()"):
            session.execute(statement.encode())
            row = session.execute(PASSED, [f"spanmq.{index}"]).fetchone()
            assert row is not None
            counts.append(int(str(row[0])))
    return counts[1] - counts[0]


@pytest.mark.parametrize(("index", "first"), [("span_pkey", 16383), ("span_ready", SETTLED)])
def test_maintain_passes_dead_entries_once(
    session: psycopg.Connection[tuple[object, ...]], index: str, first: int
) -> None:
    assert entries_passed(session, index) >= first

    def is_noted() -> bool:
        session.execute("select * from pgmq.maintain()")
        return (
            session.execute(
                "select from spanmq.segment where lo = 0 and settled_at_xid is not null"
            ).fetchone()
            is not None
        )

    wait_until(is_noted)  # an analysis of statistics may be writing at this moment
    assert entries_passed(session, index) < FEW_ENTRIES
    session.execute("select pgmq.send('jobs', '1')")
    assert entries_passed(session, index) < FEW_ENTRIES
