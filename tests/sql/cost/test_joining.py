"""maintain() joins the spans of single messages: what it costs, and what a count costs after it."""

from typing import Any

import psycopg
import pytest
from psycopg import Connection
from tests.sql.cost.counts import pages_touched
from tests.sql.model.invariants import broken_invariants

SINGLES = 20_000
MANY = 60_000


@pytest.fixture
def session(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute("select pgmq.create('orders')")
        # Else a vacuum may come before a transaction is on disk, and take its rows for young.
        opened.execute("set synchronous_commit = on")
        yield opened


def vacuum(connection: Connection[Any]) -> None:
    """Vacuum the spans until every page is known to be seen by all: an ANALYZE beside it may hold it back."""
    pages = "select relpages = relallvisible from pg_class where oid = 'spanmq.span'::regclass"
    while True:
        connection.execute("vacuum spanmq.span")
        if connection.execute(pages).fetchone() == (True,):
            return


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
    count = "select queue_length, queue_visible_length from pgmq.metrics('orders')"
    # Plans made for an empty table stay.
    assert session.execute(count).fetchone() == (0, 0)
    store_singles(session, MANY)
    session.execute("select * from pgmq.send('orders', '{}')")
    assert session.execute(count).fetchone() == (MANY + 1, MANY + 1)
    join_all(session)
    vacuum(session)
    assert session.execute(count).fetchone() == (MANY + 1, MANY + 1)
    # The key keeps a page for each of the 234 blocks: with a look at each they were 267, now 43.
    assert pages_touched(session, count) < 80


@pytest.mark.parametrize("scattered", [0, 3])
def test_metrics_after_half_was_settled_touch_few_pages(session: Connection[Any], scattered: int) -> None:
    # Half of each block has gone, and its span was written where there was room: the next is on another page.
    blocks = 300
    session.execute("select setval(q.ids, %s) from spanmq.queue q", [256 * blocks + 2048])
    session.execute(
        "insert into spanmq.span (queue_id, lo, n, state, ids)"
        " select q.queue_id, 256 * b, 128, 'r',"
        "   (select range_agg(int8range(256 * b + p, 256 * b + p + 2)) from generate_series(0, 252, 4) p)"
        " from spanmq.queue q, generate_series(1, %s) b order by b %% 20, b",
        [blocks],
    )
    # In some blocks there is another message, which waits.
    session.execute(
        "insert into spanmq.span (queue_id, lo, n, state, vt)"
        " select q.queue_id, 25600 * b + 2, 1, 'w', 'infinity' from spanmq.queue q, generate_series(1, %s) b",
        [scattered],
    )
    count = "select queue_length, queue_visible_length from pgmq.metrics('orders')"
    while session.execute("select * from pgmq.maintain()").fetchall():
        pass
    vacuum(session)
    assert session.execute(count).fetchone() == (128 * blocks + scattered, 128 * blocks)
    # With a page for each span they were 326; by the key, 92. Now 39; with three looks at 16 blocks 97.
    assert pages_touched(session, count) < (120 if scattered else 60)


# How the messages of a joined queue of 12,000 are changed, step by step; each by one kind of call.
CHANGES = (
    "select * from pgmq.set_vt('orders', 5000, 3600)",
    "select pgmq.delete('orders', 5001::bigint)",
    "select pgmq.delete('orders', array(select generate_series(8192, 12000, 300)))",
    "select * from pgmq.read('orders', 3600, 10)",
    "select pgmq.delete('orders', 2::bigint)",
    "select * from pgmq.read('orders', 0, 300)",
    "select pgmq.archive('orders', array[4, 12000]::bigint[])",
    "select * from pgmq.send('orders', '1')",
    "select * from pgmq.send_batch('orders', array_fill('1'::jsonb, array[3000]))",
    "select * from pgmq.send('orders', '1', '{\"x-pgmq-group\": \"a\"}'::jsonb)",
    "select * from pgmq.send('orders', '1', 3600)",
    "select pgmq.send_messages('orders', array_fill('1'::jsonb, array[300]), priority => 5)",
    "select * from pgmq.receive('orders', 300, 3600)",
    "select * from pgmq.pop('orders', 5000)",
)


@pytest.mark.parametrize(
    ("kind", "settled"),
    [
        # 4,096 to 8,191 are all there; and everywhere a third is not.
        ("create", range(8500, 11000, 500)),
        ("create", range(3, 12000, 3)),
        ("create_unlogged", range(3, 12000, 3)),
    ],
)
def test_metrics_of_joined_spans_are_exact(database: str, kind: str, settled: range) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        suffix = "_unlogged" if kind == "create_unlogged" else ""
        spans = f"spanmq.span{suffix}"
        session.execute(f"select pgmq.{kind}('orders')".encode())
        session.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[12000]))")
        session.execute(
            f"with whole as (delete from {spans} returning queue_id, lo, n)"
            f" insert into {spans} (queue_id, lo, n, state)"
            " select w.queue_id, w.lo + i, 1, 'r' from whole w, generate_series(0, w.n - 1) i".encode()
        )
        session.execute("select pgmq.delete('orders', %s)", [list(settled)])
        left = 12000 - len(settled)
        assert counted(session, suffix)[:2] == (left, left)
        assert counted(session, suffix) == shown(session)
        assert joined_blocks(session, spans) == 0
        joining = f"select spanmq.join_spans{suffix}(q.queue_id, 0, 1 << 30) from spanmq.queue q"
        session.execute(joining.encode())
        blocks = 12000 // 256 + 1
        assert joined_blocks(session, spans) == blocks
        assert counted(session, suffix) == shown(session)
        for change in CHANGES:
            session.execute(change.encode())
            assert counted(session, suffix) == shown(session), change
        # What was taken, or changed, is none any more, until it is joined again.
        assert joined_blocks(session, spans) < blocks - 20
        session.execute(joining.encode())
        assert counted(session, suffix) == shown(session)
        assert broken_invariants(session) == []


def counted(session: Connection[Any], suffix: str) -> Any:
    """What metrics counts, in the queue `orders`."""
    query = (
        "select m.queue_length, m.queue_visible_length, c.oldest_id, c.newest_id"
        " from pgmq.metrics('orders') m, spanmq.queue q,"
        f" spanmq.count_messages{suffix}(q.queue_id, clock_timestamp()) c"
    )
    return session.execute(query.encode()).fetchone()


def shown(session: Connection[Any]) -> Any:
    """The same of its messages one by one."""
    return session.execute(
        "select count(*), count(*) filter (where vt <= clock_timestamp()), min(msg_id), max(msg_id)"
        " from pgmq.q_orders"
    ).fetchone()


def joined_blocks(session: Connection[Any], spans: str) -> int:
    """Count the spans that metrics counts by their index."""
    query = f"select count(*) from {spans} where state = 'r' and joined_n is not null"
    row = session.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_sends_and_claims_join_nothing(session: Connection[Any]) -> None:
    # Else each would pay for an entry in an index that only metrics reads.
    session.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[3000]))")
    assert joined_blocks(session, "spanmq.span") == 0
    session.execute("select * from pgmq.receive('orders', 100)")
    session.execute("select * from pgmq.read('orders', 0, 700)")
    assert session.execute("select count(*) from spanmq.span where joined_n is not null").fetchone() == (0,)


def test_whole_blocks_are_joined_too_and_once(session: Connection[Any]) -> None:
    for _ in range(8):
        session.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[500]))")
    assert join_all(session) == joined_blocks(session, "spanmq.span") == 4000 // 256 + 1
    written = "select array_agg(ctid::text order by lo) from spanmq.span"
    before = session.execute(written).fetchone()
    join_all(session)
    assert session.execute(written).fetchone() == before, "nothing is written again"


def test_the_first_settlement_in_a_joined_block_takes_it_out_of_the_count(session: Connection[Any]) -> None:
    session.execute("select pgmq.send_batch('orders', array_fill('1'::jsonb, array[1000]))")
    join_all(session)
    assert counted(session, "") == shown(session) == (1000, 1000, 1, 1000)
    session.execute("select pgmq.delete('orders', array[100, 300, 301]::bigint[])")
    assert joined_blocks(session, "spanmq.span") == 2
    session.execute("select * from pgmq.read('orders', 0, 10)")
    assert counted(session, "") == shown(session) == (997, 997, 1, 1000)
    join_all(session)
    assert counted(session, "") == shown(session)


def test_spans_with_gaps_are_joined_as_they_are(session: Connection[Any]) -> None:
    session.execute("select pgmq.send('orders', to_jsonb(n)) from generate_series(1, 40) n")
    session.execute("select pgmq.delete('orders', id) from generate_series(10, 20) id")
    assert join_all(session) == 1
    row = session.execute("select lo, n, ids::text, state::text from spanmq.span").fetchone()
    assert row == (1, 29, "{[1,10),[21,41)}", "r")
    # And written anew with what comes between them.
    session.execute("update spanmq.span set joined_n = null")
    session.execute(
        "insert into spanmq.span (queue_id, lo, n, state) select queue_id, 12, 3, 'r' from spanmq.queue"
    )
    assert join_all(session) == 1
    row = session.execute("select lo, n, ids::text, joined_n from spanmq.span").fetchone()
    assert row == (1, 32, "{[1,10),[12,15),[21,41)}", 32)
    session.execute("delete from spanmq.span")
    session.execute(
        "insert into spanmq.span (queue_id, lo, n, state, ids)"
        " select queue_id, 1, 29, 'r', '{[1,10),[21,41)}' from spanmq.queue"
    )
    assert join_all(session) == 1
    found = session.execute("select msg_id from pgmq.read('orders', 30, 100)").fetchall()
    assert found == [(each,) for each in (*range(1, 10), *range(21, 41))]
