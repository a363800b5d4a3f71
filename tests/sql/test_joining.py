"""maintain() joins the spans of single messages: what it costs, and what a count costs after it."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.sql.faults.conftest import pages_touched

SINGLES = 20_000


@pytest.fixture
def session(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute("select pgmq.create('orders')")
        yield opened


def store_singles(connection: Connection[Any], quantity: int) -> None:
    """Store the spans of so many messages as single sends leave them, without the rows of the log."""
    connection.execute("select setval(q.ids, %s) from spanmq.queue q", [quantity])
    connection.execute(
        "insert into spanmq.span (queue_id, lo, n, state)"
        " select q.queue_id, id, 1, 'r' from spanmq.queue q, generate_series(1, %s) id",
        [quantity],
    )


def join_all(connection: Connection[Any]) -> int:
    """Join what there is to join, and return how many spans are left."""
    row = connection.execute(
        "select spanmq.join_spans(q.queue_id, 0, 1 << 30), (select count(*) from spanmq.span)"
        " from spanmq.queue q"
    ).fetchone()
    assert row is not None
    joined, before = row
    return int(before) - int(joined)


def test_joining_spans_of_a_table_never_analysed_looks_at_each_once(session: Connection[Any]) -> None:
    # A second or so. Planned as a look at every span of the call for every block it took minutes.
    store_singles(session, SINGLES)
    session.execute("set statement_timeout = '60s'")
    while session.execute("select * from pgmq.maintain()").fetchall():
        pass
    row = session.execute("select count(*), sum(n) from spanmq.span").fetchone()
    # The first and the last thousand are left to those who receive and send.
    assert row is not None
    assert (row[0] < 3 * 1024, row[1]) == (True, SINGLES)


def test_joined_spans_lie_side_by_side(session: Connection[Any]) -> None:
    store_singles(session, SINGLES)
    spans = join_all(session)
    assert spans == SINGLES // 256 + 1
    row = session.execute("select count(distinct (ctid::text::point)[0]) from spanmq.span").fetchone()
    # Where each stayed in the place of its first message there were 79.
    assert row is not None
    assert row[0] <= 2


def test_metrics_after_joining_touch_few_pages(session: Connection[Any]) -> None:
    store_singles(session, SINGLES)
    count = "select queue_length, queue_visible_length from pgmq.metrics('orders')"
    session.execute("select * from pgmq.send('orders', '{}')")
    counted = session.execute(count).fetchone()
    join_all(session)
    session.execute("vacuum spanmq.span")
    assert session.execute(count).fetchone() == counted == (SINGLES + 1, SINGLES + 1)
    # One of the index a block, for its pages keep a key of each block, and few of the table.
    assert pages_touched(session, count) < 2 * SINGLES / 256


def test_spans_with_gaps_are_joined_as_they_are(session: Connection[Any]) -> None:
    session.execute("select pgmq.send('orders', to_jsonb(n)) from generate_series(1, 40) n")
    session.execute("select pgmq.delete('orders', id) from generate_series(10, 20) id")
    assert join_all(session) == 1
    row = session.execute("select lo, n, ids::text, state::text from spanmq.span").fetchone()
    assert row == (1, 29, "{[1,10),[21,41)}", "r")
    found = session.execute("select msg_id from pgmq.read('orders', 30, 100)").fetchall()
    assert found == [(each,) for each in (*range(1, 10), *range(21, 41))]
