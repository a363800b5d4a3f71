"""Spans with gaps, as single settlements leave them: what a call touches does not grow with their number."""

import psycopg
import pytest
from tests.sql.cost.counts import pages_touched
from tests.sql.model.invariants import broken_invariants

# In each block of 256 ids: 200 messages, of which every second is deleted.
MAKE = """
do $$
begin
    for block in {} .. {} loop
        perform setval('pgmq.q_jobs_msg_id_seq', block * 256);
        perform pgmq.send_batch('jobs', array_fill('1'::jsonb, array[200]));
        perform pgmq.delete('jobs', array(select generate_series(block * 256 + 2, block * 256 + 200, 2)));
    end loop;
end $$
"""
# The ids that they name are there in the small queue and in the large one; the claims are from the left.
CALLS = {
    "delete one": "select pgmq.delete('jobs', {0} * 256 + 3)",
    "delete a span": "select pgmq.delete('jobs',"
    " array(select {1} * 256 + 2 * i - 1 from generate_series(1, 100) i))",
    "delete of two spans": "select pgmq.delete('jobs', array[{2} * 256 + 1, {2} * 256 + 3, {3} * 256 + 1])",
    "cancel one": "select pgmq.cancel('jobs', array[{4} * 256 + 3])",
    "read": "select * from pgmq.read('jobs', 30, 5)",
    "receive and ack": "select * from pgmq.ack('jobs', (select max(lease_id) from pgmq.receive('jobs', 100)),"
    " array(select msg_id from pgmq.peek('jobs', 100)))",
}
MORE_PAGES = 25


def pages(session: psycopg.Connection[object], first_block: int) -> dict[str, int]:
    blocks = range(first_block, first_block + 5)
    return {name: pages_touched(session, call.format(*blocks)) for name, call in CALLS.items()}


@pytest.fixture
def session(database: str) -> psycopg.Connection[object]:
    return psycopg.connect(database, autocommit=True)


def test_spans_with_gaps_cost_the_same_however_many_there_are(session: psycopg.Connection[object]) -> None:
    with session:
        session.execute("select pgmq.drop_queue('jobs'), pgmq.create('jobs')")
        session.execute(MAKE.format(1, 12))
        # Plans that are made for a few spans stay.
        session.execute("analyze spanmq.span")
        small = pages(session, 5)
        session.execute(MAKE.format(13, 300))
        large = pages(session, 200)
        assert {name: (small[name], n) for name, n in large.items() if n > small[name] + MORE_PAGES} == {}
        assert broken_invariants(session) == []
