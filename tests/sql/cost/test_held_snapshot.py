"""Beside a snapshot that is held elsewhere nothing dead can be removed: bounds are moved over it."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.cost.counts import entries_passed, indexes_used, rows_written
from tests.sql.queue import Connection

CYCLES = 30
FEW = 50
DEAD = 5_000
QUEUES = 20
MAINTAIN = "select * from spanmq.maintain()"
# What sends messages, and what takes them.
CYCLE = {
    "one": ("pgmq.send('jobs', '1')", "pgmq.read('jobs', 30, 1)"),
    "batch": ("pgmq.send_batch('jobs', array_fill('1'::jsonb, array[50]))", "spanmq.receive('jobs', 100)"),
}
POLICIES = ("{}", '{"ordered": true}', '{"max_in_flight": 1000}', '{"max_in_flight_per_group": 10}')


@pytest.fixture
def session(database: str) -> Iterator[Connection]:
    """Yield a session beside one whose snapshot is older than every message."""
    with psycopg.connect(database) as holder, psycopg.connect(database, autocommit=True) as opened:
        opened.execute("select pgmq.create('jobs')")
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        yield opened


def maintain(session: Connection) -> None:
    for _ in range(4):
        session.execute(MAINTAIN)


@pytest.mark.parametrize("kind", CYCLE)
def test_claim_passes_nothing_that_died_before_the_bound(session: Connection, kind: str) -> None:
    send, claim = CYCLE[kind]

    def cost() -> int:
        session.execute(f"select {send}".encode())
        entries = entries_passed(session, f"select * from {claim}")
        session.execute("select pgmq.purge_queue('jobs')")
        maintain(session)
        return entries

    first = cost()
    for _ in range(CYCLES):
        session.execute(f"select {send}".encode())
        session.execute(f"select pgmq.delete('jobs', array_agg(msg_id)) from {claim}".encode())
    maintain(session)
    assert cost() <= first + FEW


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("group", [None, "a"])
def test_claim_passes_nothing_that_was_due_before_the_bound(
    session: Connection, group: str | None, policy: str
) -> None:
    session.execute("select spanmq.set_policy('jobs', %s)", [policy])
    # As if they had come back an hour ago.
    session.execute(
        "insert into spanmq_core.later (queue_id, msg_id, attempts, vt, group_hash, group_key)"
        " select q.queue_id, id, 1, now() - interval '1 hour', hashtextextended(%s, 0), %s"
        " from spanmq_core.queue q, generate_series(1, %s) id",
        [group, group, DEAD],
    )
    session.execute("delete from spanmq_core.later")
    session.execute("select pgmq.send('jobs', '1', %s::jsonb)", [f'{{"x-pgmq-group": "{group}"}}'])
    claims = ["select * from spanmq.receive('jobs')", "select * from pgmq.read_grouped('jobs', 30, 1)"]
    before = [entries_passed(session, claim) for claim in claims]
    maintain(session)
    after = [entries_passed(session, claim) for claim in claims]
    assert (min(before) >= DEAD, max(after) < FEW) == (True, True), (before, after)
    assert entries_passed(session, MAINTAIN) < FEW


@pytest.mark.parametrize("look", ["pgmq.metrics('jobs')", "spanmq.health()"])
def test_counts_pass_no_row_that_died_before_the_bound(session: Connection, look: str) -> None:
    for _ in range(CYCLES):
        session.execute("select pgmq.send('jobs', '1')")
        session.execute("select pgmq.delete('jobs', array_agg(msg_id)) from pgmq.read('jobs', 30, 1)")
    maintain(session)
    for messages in range(3):
        assert indexes_used(session, f"select * from {look}")["state_pkey"] <= 2 * messages
        session.execute("select pgmq.send('jobs', '1')")


def test_idle_queues_cost_maintain_next_to_nothing(session: Connection) -> None:
    session.execute("select pgmq.create('idle_' || q) from generate_series(1, %s) q", [QUEUES])
    # Messages that were all settled leave nothing to do.
    session.execute(
        "select count(*) from spanmq_core.queue q, pgmq.send(q.name, '1') id, pgmq.delete(q.name, id)"
    )
    while session.execute(MAINTAIN).fetchall():
        pass
    maintain(session)
    assert rows_written(session, MAINTAIN) == 0
    assert entries_passed(session, MAINTAIN) < 10 * QUEUES
