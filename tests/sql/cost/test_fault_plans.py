"""W4: PGMQ plans its inner statement anew at every call."""

from typing import LiteralString

import pytest
from tests.sql.conftest import System
from tests.sql.queue import Connection

CALLS = 10


def plans_made(session: Connection, query: LiteralString) -> int:
    """Count the plans that CALLS calls make, after as many that warm up; PostgreSQL says each of them.

    The least of three: what calls do now and then, such as moving a bound, is planned when it is first done.
    """
    plans = 0

    def count(diagnostic: object) -> None:
        nonlocal plans
        plans += getattr(diagnostic, "message_primary", None) == "plan:"

    session.prepare_threshold = 0
    for _ in range(CALLS):
        session.execute(query)
    session.add_notice_handler(count)
    session.execute("set debug_print_plan = on")
    session.execute("set client_min_messages = log")
    counts = []
    for _ in range(3):
        plans = 0
        for _ in range(CALLS):
            session.execute(query)
        counts.append(plans)
    session.execute("set client_min_messages = warning")
    session.remove_notice_handler(count)
    return min(counts)


@pytest.mark.parametrize(
    "query",
    [
        "select pgmq.delete('orders', nextval('next_id'))",
        "select pgmq.delete('orders', array[nextval('next_id'), nextval('next_id')])",
        "select pgmq.delete('orders', 1000000)",
        "select pgmq.read('empty', 100, 1)",
    ],
)
def test_w4_what_only_touches_spans_keeps_its_plans(
    query: LiteralString, system: System, session: Connection
) -> None:
    session.execute("create sequence next_id")
    session.execute("select pgmq.create('empty'), pgmq.create('orders')")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[100]))")
    session.execute("select count(*) from pgmq.read('orders', 100, 50)")
    made = plans_made(session, query)
    assert made >= CALLS if system.is_upstream else made == 0, made


@pytest.mark.parametrize("query", ["select pgmq.send('orders', '1')", "select pgmq.read('orders', 100, 1)"])
def test_w4_what_touches_a_log_plans_one_short_statement(
    query: LiteralString, system: System, session: Connection
) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select count(*) from pgmq.send_batch('orders', array_fill('1'::jsonb, array[100]))")
    made = plans_made(session, query)
    # The statement names the segment, so it is put together for each call: the part of W4 that stays.
    assert made >= CALLS if system.is_upstream else made <= CALLS, made
