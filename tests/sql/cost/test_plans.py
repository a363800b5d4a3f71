"""Plans that were made on empty or tiny tables serve huge ones: what a call touches does not grow.

Proven by pages and scans, not by time. Everything of a test runs in one session, whose plans are kept.
"""

from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import Connection
from tests.sql.cost.counts import entries_passed, pages_touched

CALLS = {
    "send": "select pgmq.send('q7', '1')",
    "send a batch": "select pgmq.send_batch('q7', array_fill('1'::jsonb, array[10]))",
    "read": "select * from pgmq.read('q7', 30, 10)",
    "read one": "select * from pgmq.read('q7', 30, 1)",
    "receive": "select * from pgmq.receive('q7', 10)",
    "receive one": "select * from pgmq.receive('q7')",
    "pop": "select * from pgmq.pop('q7', 3)",
    "delete": "select pgmq.delete('q7', (select min(msg_id) from pgmq.peek('q7', 1)))",
    "delete many": "select pgmq.delete('q7', array(select msg_id from pgmq.peek('q7', 5)))",
    "archive": "select pgmq.archive('q7', array(select msg_id from pgmq.peek('q7', 5)))",
    "set_vt": "select * from pgmq.set_vt('q7', (select min(msg_id) from pgmq.peek('q7', 1)), 60)",
    "receive and ack": "select * from pgmq.ack('q7', (select max(lease_id) from pgmq.receive('q7', 4)),"
    " array(select msg_id from pgmq.peek('q7', 4)))",
    "receive and ack one": "select a.* from pgmq.receive('q7') m,"
    " pgmq.ack('q7', m.lease_id, array[m.msg_id]) a",
    "receive and nack": "select * from pgmq.nack('q7', (select max(lease_id) from pgmq.receive('q7', 4)),"
    " array(select msg_id from pgmq.peek('q7', 4)))",
    "metrics": "select * from pgmq.metrics('q7')",
    "status": "select pgmq.status('q7', (select min(msg_id) from pgmq.peek('q7', 1)))",
}
LOOKS: tuple[LiteralString, ...] = (
    "select * from pgmq.q_q7 where msg_id = 3",
    "select * from pgmq.q_q7 where msg_id in (2, 3, 5)",
    "select * from pgmq.q_q7 where msg_id = any (array[2, 3, 5])",
    "select * from pgmq.q_q7 q join (values (2), (3)) v (id) on q.msg_id = v.id",
    "update pgmq.q_q7 set vt = now() + interval '1 hour' where msg_id = 3",
    "delete from pgmq.q_q7 where msg_id = 3",
)
CLAIMS = ("read", "read one", "receive", "receive one", "pop", "receive and ack", "receive and ack one")
# A handful of index pages a statement, and some statements a call; thousands if one walks through a table.
MORE_PAGES = 120
QUEUES = 50
# Tables of which a scan from end to end would cost what all queues hold.
LARGE = ("fresh", "held", "done", "failure", "dead_letter", "statistics", "expiry")


def fill(connection: Connection[Any], each: int) -> None:
    """Send so many messages to each queue, one by one: a run each."""
    connection.execute(
        "select count(id) from generate_series(1, %s) n, generate_series(1, %s) q,"
        " pgmq.send('q' || q, '1') id",
        [each, QUEUES],
    )


def pages(connection: Connection[Any]) -> dict[str, int]:
    return {name: pages_touched(connection, text) for name, text in CALLS.items()}


def scans(connection: Connection[Any]) -> int:
    row = connection.execute(
        "select coalesce(sum(seq_scan), 0)::int from pg_stat_xact_user_tables"
        " where schemaname = 'spanmq' and relname = any (%s)",
        [list(LARGE)],
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def session(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute("select pgmq.create('q' || q) from generate_series(1, %s) q", [QUEUES])
        yield opened


@pytest.mark.parametrize("analysed", ["never", "empty", "tiny"])
def test_plans_of_small_tables_serve_large_ones(session: Connection[Any], analysed: str) -> None:
    if analysed == "empty":
        session.execute("analyze")
    fill(session, 6)
    if analysed == "tiny":
        session.execute("analyze")
    small = pages(session)
    fill(session, 150)
    large = pages(session)
    assert {name: (small[name], n) for name, n in large.items() if n > small[name] + MORE_PAGES} == {}
    session.execute("analyze")
    with psycopg.connect(session.info.dsn, autocommit=True) as fresh:
        assert {name: n for name, n in pages(fresh).items() if n > small[name] + MORE_PAGES} == {}


@pytest.mark.parametrize("analysed", ["never", "empty", "tiny"])
def test_view_of_a_queue_is_cheap_to_look_into_by_id(session: Connection[Any], analysed: str) -> None:
    def now() -> dict[str, int]:
        return {text: pages_touched(session, text) for text in LOOKS}

    if analysed == "empty":
        session.execute("analyze")
    fill(session, 6)
    if analysed == "tiny":
        session.execute("analyze")
    small = now()
    session.execute(
        "select count(id) from generate_series(1, 5000) n, pgmq.send('q7', to_jsonb(n)) id",
    )
    large = now()
    assert {name: (small[name], n) for name, n in large.items() if n > small[name] + MORE_PAGES} == {}
    session.execute("analyze")
    assert {name: (small[name], n) for name, n in now().items() if n > small[name] + MORE_PAGES} == {}


def test_claims_read_no_more_of_a_long_queue_that_was_never_analysed(session: Connection[Any]) -> None:
    def now(opened: Connection[Any]) -> dict[str, int]:
        return {name: pages_touched(opened, CALLS[name]) for name in CLAIMS}

    send = "select count(id) from generate_series(1, %s) n, pgmq.send('q7', to_jsonb(n)) id"
    # More than a block of ids, whose runs a look by id may all meet.
    session.execute(send, [600])
    small = now(session)
    session.execute(send, [20_000])
    large = now(session)
    assert {name: (small[name], n) for name, n in large.items() if n > small[name] + MORE_PAGES} == {}
    with psycopg.connect(session.info.dsn, autocommit=True) as fresh:
        assert {name: n for name, n in now(fresh).items() if n > small[name] + MORE_PAGES} == {}


def test_nothing_is_scanned_from_end_to_end(session: Connection[Any]) -> None:
    fill(session, 6)
    session.execute("analyze")
    for name, text in CALLS.items():
        with session.transaction(force_rollback=True):
            before = scans(session)
            session.execute(text.encode())
            assert scans(session) == before, name


def test_a_held_snapshot_does_not_make_calls_walk(session: Connection[Any]) -> None:
    fill(session, 6)
    small = pages(session)
    with psycopg.connect(session.info.dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        for _ in range(40):
            session.execute("select pgmq.send_batch('q7', array_fill('1'::jsonb, array[50]))")
            for _ in range(5):
                session.execute("select * from pgmq.pop('q7', 10)")
        held = pages(session)
    assert {name: (small[name], n) for name, n in held.items() if n > small[name] + 2 * MORE_PAGES} == {}


GROUPED = {
    "head": "select * from pgmq.read_grouped_head('{}', 30, 1)",
    "grouped": "select * from pgmq.read_grouped('{}', 30, 5)",
    "round robin": "select * from pgmq.read_grouped_rr('{}', 30, 5)",
    "receive in order": "select * from pgmq.receive('{}_ordered', 5)",
    "receive one in order": "select * from pgmq.receive('{}_ordered')",
    "receive few of a group": "select * from pgmq.receive('{}_limited', 5)",
    "receive one of few of a group": "select * from pgmq.receive('{}_limited')",
}
SEND_GROUPS = (
    "select count(id) from generate_series(1, %s) n,"
    " pgmq.send(%s, '1', jsonb_build_object('x-pgmq-group', 'group-' || n %% 500)) id"
)
SEND_GROUP = (
    "select count(id) from generate_series(1, 1500),"
    " pgmq.send(%s, '1', '{\"x-pgmq-group\": \"busy\"}'::jsonb) id"
)


@pytest.mark.parametrize("live", [0, 1, 2, 3])
def test_plans_of_a_queue_that_was_full_and_is_empty_serve_it_when_it_is_full(
    database: str, live: int
) -> None:
    """Statistics of a table with many pages and hardly a row: all of its indexes seem to cost the same."""
    names = ("jobs", "jobs_ordered", "jobs_limited", "q7")
    calls = {**CALLS, **{name: text.format("jobs") for name, text in GROUPED.items()}}
    with psycopg.connect(database, autocommit=True) as opened:
        for name in names:
            opened.execute("select pgmq.create(%s)", [name])
        opened.execute("select pgmq.set_policy('jobs_ordered', '{\"ordered\": true}')")
        opened.execute("select pgmq.set_policy('jobs_limited', '{\"max_in_flight_per_group\": 2000}')")
        for name in names:
            opened.execute(SEND_GROUPS, [3000, name])
            opened.execute("select pgmq.purge_queue(%s)", [name])
        opened.execute(SEND_GROUPS, [live, "jobs"])
        opened.execute("vacuum analyze")
        for name in names:
            # In work: what a look for the next message must not pass.
            opened.execute(SEND_GROUP, [name])
            opened.execute("select count(*) from pgmq.read(%s, 600, 1500)", [name])
            opened.execute(SEND_GROUPS, [3000, name])
    with psycopg.connect(database, autocommit=True) as fresh:
        found = {name: [entries_passed(fresh, text) for _ in range(3)][2] for name, text in calls.items()}
    # What is sent to a queue in these tests: 4,500 messages, of which 1,500 are in work.
    assert {name: n for name, n in found.items() if n > 1000 and name != "metrics"} == {}


def test_peek_costs_the_same_whatever_waits(session: Connection[Any]) -> None:
    session.execute("select pgmq.create('jobs')")
    session.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[300]))")
    few = pages_touched(session, "select * from pgmq.peek('jobs', 5, 10)")
    session.execute("select pgmq.send_batch('jobs', array_fill('1'::jsonb, array[20000]))")
    many = pages_touched(session, "select * from pgmq.peek('jobs', 5, 10)")
    assert many < few + 20, (few, many)
    assert pages_touched(session, "select * from pgmq.peek('jobs', 5, 20000)") < few + 40
