"""Housekeeping beside a snapshot held elsewhere: it looks through what died once only."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.cli.program import wait_until
from tests.sql.cost import counts
from tests.sql.cost.counts import Connection

SETTLED = 20_000
DRAWN = 40_000  # past the first segment
FEW_ENTRIES = 200


@pytest.fixture
def session(database: str) -> Iterator[Connection]:
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


def entries_passed(session: Connection, index: str = "%") -> int:
    return counts.entries_passed(session, "select * from pgmq.maintain()", index, stays=True)


def note_as_settled(session: Connection) -> None:
    """Let maintain() note that the first segment is settled. Statistics may be written just now."""

    def is_noted() -> bool:
        session.execute("select * from pgmq.maintain()")
        noted = "select from spanmq.segment where lo = 0 and settled_at_xid is not null"
        return session.execute(noted).fetchone() is not None

    wait_until(is_noted)


@pytest.mark.parametrize(("index", "first"), [("%.span_pkey", 16383), ("%.span_ready", SETTLED)])
def test_maintain_passes_dead_entries_once(session: Connection, index: str, first: int) -> None:
    assert entries_passed(session, index) >= first

    note_as_settled(session)
    assert entries_passed(session, index) < FEW_ENTRIES
    session.execute("select pgmq.send('jobs', '1')")
    assert entries_passed(session, index) < FEW_ENTRIES


def test_maintain_passes_none_where_statistics_know_of_few_spans(
    session: Connection,
) -> None:
    """The look for spans that everything has left begins with what left them, not with the spans."""
    note_as_settled(session)
    session.execute("select pgmq.send('jobs', '1')")
    session.execute("analyze spanmq.span, spanmq.settled")
    assert entries_passed(session) < FEW_ENTRIES
