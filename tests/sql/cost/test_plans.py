"""Each statement has one index that can serve it, whatever ANALYZE knew of the tables when it was planned.

Proven by the indexes that calls use, their entries and pages, not by time.
"""

from typing import LiteralString

import psycopg
import pytest
from tests.schemas import qualified
from tests.sql.cost.counts import indexes_used, pages_touched
from tests.sql.queue import Connection

POLICIES = {
    "plain": None,
    "ordered": '{"ordered": true}',
    "few": '{"max_in_flight_per_group": 2000}',
    "limited": '{"max_attempts": 3, "max_in_flight": 100000}',
}
CALLS: dict[str, str] = {
    "send": "select pgmq.send('plain', '1')",
    "send later": "select pgmq.send('plain', '1', 60)",
    "send a batch": "select pgmq.send_batch('plain', array_fill('1'::jsonb, array[10]))",
    **{
        f"{name} {queue}": f"select * from {qualified(call)}"
        for queue in POLICIES
        for name, call in {
            "read": f"read('{queue}', 30, 10)",
            "read one": f"read('{queue}', 30, 1)",
            "receive": f"receive('{queue}', 10)",
            "receive one": f"receive('{queue}')",
            "pop": f"pop('{queue}', 3)",
        }.items()
    },
    "head": "select * from pgmq.read_grouped_head('plain', 30, 1)",
    "grouped": "select * from pgmq.read_grouped('plain', 30, 5)",
    "round robin": "select * from pgmq.read_grouped_rr('plain', 30, 5)",
    "conditional": "select * from pgmq.read('plain', 30, 1, '1')",
    "delete": "select pgmq.delete('plain', FREE)",
    "delete many": "select pgmq.delete('plain', array[FREE, FREE + 3, FREE + 5, FREE + 7])",
    "archive": "select pgmq.archive('plain', array[FREE, FREE + 1])",
    "set_vt": "select * from pgmq.set_vt('plain', FREE, 60)",
    "delete leased": "select pgmq.delete('plain', LEASED)",
    "cancel": "select * from spanmq.cancel('plain', array[LEASED, FREE])",
    "ack": "select * from spanmq.ack('plain', (select max(lease_id) from spanmq.receive('plain', 4)),"
    " array(select generate_series(FIRST, FIRST + 3)))",
    "ack one": "select a.* from spanmq.receive('plain') m, spanmq.ack('plain', m.lease_id, array[m.msg_id]) a",
    "nack": "select n.* from spanmq.receive('ordered') m, spanmq.nack('ordered', m.lease_id, array[m.msg_id]) n",
    "reject one": "select r.* from spanmq.receive('limited') m,"
    " spanmq.reject('limited', m.lease_id, array[m.msg_id]) r",
    "extend": "select spanmq.extend('plain', (select max(lease_id) from spanmq.receive('plain', 4)),"
    " array(select generate_series(FIRST, FIRST + 3)), 60)",
    "state": "select spanmq.state('plain', FREE)",
    "peek": "select * from spanmq.peek('plain', 5, 10)",
    "look ahead": "select spanmq.look_ahead('plain')",
}
# What is sent to each queue: single messages in 500 groups, behind 1,500 of one group that are leased.
SENT = 3000
MOST = 2600
LEASED = 1500
SEND: LiteralString = (
    "select count(id) from generate_series(1, %s) n,"
    " pgmq.send(%s, to_jsonb(n), jsonb_build_object('x-pgmq-group', n %% %s)) id"
)


def fill(session: Connection) -> None:
    for queue in POLICIES:
        session.execute(SEND, [LEASED, queue, 1])
        session.execute("select count(*) from pgmq.read(%s, 600, %s)", [queue, LEASED])
        session.execute(SEND, [SENT, queue, 500])


def maintain(session: Connection) -> None:
    """Call it until nothing is left to do: a call does so much, of whatever queue."""
    for _ in range(100):
        if session.execute("select from spanmq.maintain()").fetchone() is None:
            break
    for _ in range(3):
        session.execute("select * from spanmq.maintain()")


def used(dsn: str) -> dict[str, dict[str, int]]:
    """Return what each call uses the third time, in a session of its own: all plans are made anew."""
    with psycopg.connect(dsn, autocommit=True) as session:
        untried = "select min(msg_id) from spanmq_core.unsettled where queue_id = 1 and attempts = 0"
        first = session.execute(untried.encode()).fetchone()
        assert first is not None
        ids = {"FIRST": first[0], "FREE": first[0] + 100, "LEASED": first[0] - 100}
        found = {}
        for name, call in CALLS.items():
            text = call
            for word, id_ in ids.items():
                text = text.replace(word, str(id_))
            found[name] = [indexes_used(session, text) for _ in range(3)][2]
        return found


def test_each_statement_has_one_index(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as session, psycopg.connect(database) as holder:
        for queue, policy in POLICIES.items():
            session.execute("select pgmq.create(%s)", [queue])
            if policy is not None:
                session.execute("select spanmq.set_policy(%s, %s)", [queue, policy])
        fill(session)
        # Moves the bounds past what was claimed: whether a scan passes deleted rows else depends on other sessions.
        maintain(session)
        never = used(database)
        session.execute("analyze")
        full = used(database)
        # Emptied, with a dead entry for each that was there: all indexes seem to cost the same.
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select 1")
        for queue in POLICIES:
            session.execute("select pgmq.purge_queue(%s)", [queue])
        session.execute("vacuum analyze")
        fill(session)
        maintain(session)
        empty = used(database)
    for found in (full, empty):
        others = {name: each.keys() ^ never[name].keys() for name, each in found.items()}
        assert [(name, *indexes) for name, indexes in others.items() if indexes] == []
    assert [name for name, each in never.items() for index in each if index.startswith("all of")] == []
    for found in (never, full, empty):
        # A conditional read looks at all visible messages. A limit of what is in flight counts that, twice.
        assert [
            (n, each)
            for n, each in found.items()
            if n != "conditional"
            and sum(each.values()) > MOST + (4 * LEASED if "limited" in n or n == "reject one" else 0)
        ] == []


READ_THROUGH = (
    "select count(*) from unnest('{queue,bound,policy,segment}'::text[]) name,"
    " pg_stat_get_xact_numscans(('spanmq_core.' || name)::regclass) scans where scans > 0"
)


@pytest.mark.parametrize(
    "first", ["spanmq.get_policy('plain')", "spanmq.receiver_open('plain')", "pgmq.send('plain', '1')"]
)
def test_functions_find_a_queue_by_its_index_whichever_was_called_first(first: str, database: str) -> None:
    """A session keeps a plan: one that was made for another caller must be right for all."""
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("select pgmq.create('plain'), spanmq.set_policy('plain', '{\"max_attempts\": 3}')")
        session.execute("analyze")
    with psycopg.connect(database) as session:
        for call in (first, "pgmq.read('plain', 0, 1)", "pgmq.pop('plain')", first):
            for _ in range(7):
                session.execute(f"select count(*) from {call}".encode())
        assert session.execute(READ_THROUGH).fetchone() == (0,)


LOOKS: tuple[LiteralString, ...] = (
    "select * from pgmq.q_plain where msg_id = 3",
    "select * from pgmq.q_plain where msg_id in (2, 3, 5)",
    "update pgmq.q_plain set vt = now() + interval '1 hour' where msg_id = 3",
    "delete from pgmq.q_plain where msg_id = 3",
    "select * from spanmq.peek('plain', 5, 10)",
)
# A handful of index pages a statement; thousands if one walks through a table.
MORE_PAGES = 120


@pytest.mark.parametrize("analysed", ["never", "empty", "tiny"])
def test_look_into_a_queue_costs_the_same_whatever_waits(database: str, analysed: str) -> None:
    send = "select count(*) from pgmq.send_batch(%s, array_fill('1'::jsonb, array[%s]))"
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("select pgmq.create('plain'), pgmq.create('other')")
        if analysed == "empty":
            session.execute("analyze")
        session.execute(send, ["plain", 10])
        session.execute(send, ["other", 300])
        if analysed == "tiny":
            session.execute("analyze")
        small = {look: pages_touched(session, look) for look in LOOKS}
        session.execute(
            "select count(id) from generate_series(1, 5000) n, pgmq.send('plain', to_jsonb(n)) id"
        )
        session.execute(send, ["plain", 20000])
        for _ in range(2):
            large = {look: pages_touched(session, look) for look in LOOKS}
            assert [(look, small[look], n) for look, n in large.items() if n > small[look] + MORE_PAGES] == []
            session.execute("analyze")


def test_queue_is_made_without_a_scan_of_all_relations(connection: Connection) -> None:
    """Else ten thousand queues would cost ten thousand scans, each of a larger catalogue than the one before."""
    scans = "select pg_stat_get_xact_numscans('pg_class'::regclass)"
    with connection.transaction(force_rollback=True):
        before = connection.execute(scans).fetchone()
        for kind in ("create", "create_unlogged"):
            connection.execute(f"select pgmq.{kind}('made_{kind}')".encode())
        assert connection.execute(scans).fetchone() == before
