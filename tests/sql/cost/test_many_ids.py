"""Forty thousand ids that don't follow each other: a call costs by their number, not by its square."""

import re
from typing import Any

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.queue import Connection, one

PENDING = (
    "pgmq.delete('jobs', %(ids)s)",
    "pgmq.archive('jobs', %(ids)s)",
    "pgmq.set_vt('jobs', %(ids)s, 60)",
    "spanmq.cancel('jobs', %(ids)s)",
)
# One of the ids is stale: it has to be told from the others.
LEASED = (
    "pgmq.delete('jobs', %(ids)s)",
    "spanmq.ack('jobs', %(lease)s, %(ids)s)",
    "spanmq.nack('jobs', %(lease)s, %(ids)s)",
    "spanmq.nack('jobs', %(lease)s, %(ids)s, category => 'PERMANENT')",
    "spanmq.reject('jobs', %(lease)s, %(ids)s)",
    "spanmq.release('jobs', %(lease)s, %(ids)s)",
    "spanmq.extend('jobs', %(lease)s, %(ids)s, 60)",
    "spanmq.cancel('jobs', %(ids)s)",
)
FEW, TIMES = 1000, 40
# What copies all that it has found so far with each hundred more does ten times that work.
LINEAR = TIMES * 2.5
TAKEN = re.compile(r"([\d.]+) s user, ([\d.]+) s system, [\d.]+ s elapsed")


@pytest.fixture
def session(database: str) -> Any:
    with psycopg.connect(database, autocommit=True) as opened:
        opened.execute("select pgmq.create('jobs')")
        opened.execute(
            "select count(*) from pgmq.send_batch('jobs', array_fill('1'::jsonb, array[%s]))",
            [2 * FEW * TIMES],
        )
        yield opened


def processor_seconds(session: Connection, call: str, ids: list[int], lease: int | None = None) -> float:
    """Return the server's own processor time for a call, the least of two: load leaves it alone."""
    told: list[str] = []
    session.add_notice_handler(lambda diagnostic: told.append(diagnostic.message_detail or ""))
    seconds = []
    for _ in range(2):
        with session.transaction(force_rollback=True):
            session.execute("set local client_min_messages = log")
            session.execute("set local log_statement_stats = on")
            told.clear()
            session.execute(f"select count(*) from {call}".encode(), {"ids": ids, "lease": lease})
            session.execute("set local log_statement_stats = off")
        seconds.append(
            sum(float(user) + float(system) for each in told for user, system in TAKEN.findall(each))
        )
    return min(seconds)


@pytest.mark.parametrize("call", PENDING)
def test_a_call_on_many_pending_messages_is_linear(session: Connection, call: str) -> None:
    few = processor_seconds(session, call, list(range(1, 2 * FEW, 2)))
    many = processor_seconds(session, call, list(range(1, 2 * FEW * TIMES, 2)))
    assert 0 < many < LINEAR * few, (few, many)


@pytest.mark.parametrize("call", LEASED)
def test_a_call_on_many_leased_messages_is_linear(session: Connection, call: str) -> None:
    lease = one(session, "select max(lease_id) from spanmq.receive('jobs', 1000000, 600)")
    stale = 10 * FEW * TIMES
    few = processor_seconds(session, call, [*range(1, 2 * FEW, 2), stale], lease)
    many = processor_seconds(session, call, [*range(1, 2 * FEW * TIMES, 2), stale], lease)
    assert 0 < many < LINEAR * few, (few, many)


def test_to_cancel_what_is_free_looks_for_nothing_again(database: str) -> None:
    # Each in a span of its own: to find out where one of them is may take a look at all that share its block.
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("select pgmq.create('jobs')")
        session.execute(
            "select count(*) from pgmq.send_batch('jobs', array_fill('1'::jsonb, array[2000]),"
            " array(select jsonb_build_object('x-pgmq-group', n) from generate_series(1, 2000) n))"
        )
        every_other = "array(select generate_series(1, 2000, 2)::bigint)"
        deletes, cancels = (
            pages(session, f"select count(*) from {qualified(verb)}('jobs', {every_other})")
            for verb in ("delete", "cancel")
        )
    # A row is locked, noted and then deleted.
    assert 0 < cancels < 1.7 * deletes, (deletes, cancels)


def pages(session: Connection, call: str) -> int:
    """Return how many pages a call touches that is made a second time, and undo it."""
    for _ in range(2):
        with session.transaction(force_rollback=True):
            plan = one(session, f"explain (analyze, buffers, format json) {call}")[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
