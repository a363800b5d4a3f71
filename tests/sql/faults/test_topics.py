"""W24: routing that matches every pattern there is, whatever word it begins with."""

import time

from tests.sql.faults.conftest import Connection, System

OTHER_PATTERNS = 2000
SENDS = 9


def seconds(session: Connection) -> float:
    """Return what the quickest of some sends to a topic takes."""
    took = []
    for _ in range(SENDS):
        started_at = time.perf_counter()
        session.execute("select pgmq.send_topic('orders.new.done', '1')")
        took.append(time.perf_counter() - started_at)
    return min(took)


def test_w24_patterns_that_begin_with_another_word_cost_nothing(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.bind_topic('orders.*.done', 'orders'), pgmq.bind_topic('#.done', 'orders')")
    alone = seconds(session)
    session.execute(
        "select count(pgmq.bind_topic('customer-' || n || '.*.done', 'orders'))"
        " from generate_series(1, %s) n",
        [OTHER_PATTERNS],
    )
    among_many = seconds(session)
    # PGMQ compiles 2,000 regular expressions each time: tens of times as long.
    assert (among_many > 4 * alone) is system.is_upstream, (alone, among_many)
