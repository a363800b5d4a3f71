"""W1, W2, W3, W11, W16, W17: what a call costs must not grow with what it has nothing to do with."""

from collections.abc import Iterator

import psycopg
import pytest
from tests.sql.conftest import System
from tests.sql.cost.counts import WRITTEN, pages_touched
from tests.sql.queue import Connection, column, one

from spanmq import embedded
from spanmq.client import Client

# Of a few dozen pages a call looks at a handful of times; of thousands it walks through something.
FEW = 100
MANY = 150


@pytest.fixture
def lonely_database() -> Iterator[str]:
    """The DSN of a database on a server of its own.

    A transaction of another database that is open keeps rows that are dead, and calls pass them.
    """
    settings = {"autovacuum": "off", "fsync": "off"}
    with embedded.temporary(settings=settings) as server, Client(server.dsn) as client:
        client.install()
        yield server.dsn


def send(session: Connection, queue: str, n: int, delay: int = 0) -> None:
    session.execute(
        "select count(*) from pgmq.send_batch(%s, array(select to_jsonb(repeat('x', 200))"
        " from generate_series(1, %s)), %s)",
        [queue, n, delay],
    )


def test_w1_read_costs_the_same_behind_delayed_messages(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    send(session, "orders", 5000, delay=1000)
    session.execute("select pgmq.send('orders', '1')")
    pages = pages_touched(session, "select * from pgmq.read('orders', 100, 1)")
    assert pages > MANY if system.is_upstream else pages < FEW, pages


def test_w1_read_costs_the_same_behind_messages_in_work(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    send(session, "orders", 5000)
    session.execute("select count(*) from pgmq.read('orders', 1000, 5000)")
    # As another session that connects may for a moment: it keeps what has left the table from being forgotten.
    holder = system.connect()
    holder.execute("begin isolation level repeatable read; select 1")
    if not system.is_upstream:
        # The first sets aside what is leased in front, and the second moves the bound past it.
        for _ in range(2):
            session.execute("select count(*) from spanmq.maintain()")
    session.execute("select pgmq.send('orders', '1')")
    pages = pages_touched(session, "select * from pgmq.read('orders', 100, 1)")
    assert pages > MANY if system.is_upstream else pages < FEW, pages
    assert column(session, "select message from pgmq.read('orders', 100, 10)") == [1]


def test_w1_maintenance_goes_on_until_no_read_passes_messages_in_work(lonely_database: str) -> None:
    with psycopg.connect(lonely_database, autocommit=True) as session:
        session.execute("select pgmq.create('orders')")
        for _ in range(6):
            send(session, "orders", 10_000)
        for read in ("select 1", "select count(*) from pgmq.read('orders', 1000, 60000)"):
            session.execute(read.encode())
            while session.execute("select * from spanmq.maintain()").fetchall():
                pass
        session.execute("select pgmq.send('orders', '1')")
        assert pages_touched(session, "select * from pgmq.read('orders', 100, 1)") < FEW


def test_extending_messages_reads_nothing_of_the_backlog_behind_them(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as session:
        session.execute("select pgmq.create('orders')")
        send(session, "orders", 5000)
        lease = one(session, "select lease_id from spanmq.receive('orders')")
        extend = f"select * from spanmq.extend('orders', {lease}, array[1], 60)"
        assert pages_touched(session, extend) < FEW


def test_a_message_is_received_at_the_same_cost_however_often_it_failed(lonely_database: str) -> None:
    """Each receive returns the last error; of the second message it is among those of its block."""
    receive = "select lease_id from spanmq.receive('orders', 2)"
    nack = "select count(*) from spanmq.nack('orders', %s, '{1,2}', repeat('x', 1500), retry_in => 0)"
    with psycopg.connect(lonely_database, autocommit=True) as session:
        session.execute("select pgmq.create('orders')")
        session.execute("select spanmq.set_policy('orders', '{\"max_attempts\": 0}')")
        send(session, "orders", 2)

        def cost_after(failures: int) -> int:
            for _ in range(failures):
                assert one(session, nack, column(session, receive)[1]) == 2
            while session.execute("select * from spanmq.maintain()").fetchall():
                pass
            return pages_touched(session, receive)

        few = cost_after(10)
        many = cost_after(500)
        assert many < few + 50


def test_w2_a_batch_writes_four_rows_a_message(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    with session.transaction():
        send(session, "orders", 200)
        session.execute("select count(*) from pgmq.read('orders', 100, 200)")
        session.execute("select pgmq.delete('orders', array(select generate_series(1, 200)))")
        written = one(session, WRITTEN)
    # Of each message a row in the log, and a narrow one that is inserted, leased where it is, and deleted.
    assert written >= 600 if system.is_upstream else 800 <= written < 840, written


def test_w2_reading_leaves_the_messages_rows_alone(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    send(session, "orders", 50)
    with session.transaction():
        for _ in range(50):
            session.execute("select pgmq.read('orders', 100, 1)")
        updated, updated_in_place = session.execute(
            "select sum(n_tup_upd)::int, sum(n_tup_hot_upd)::int from pg_stat_xact_user_tables"
            " where relname ~ '^(q_orders|log_)'"
        ).fetchone() or (None, None)
    assert (updated, updated_in_place) == ((50, 0) if system.is_upstream else (0, 0))


def test_w3_a_snapshot_held_elsewhere_does_not_slow_reads(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")

    def cost() -> int:
        session.execute("select pgmq.send('orders', '1')")
        pages = pages_touched(session, "select * from pgmq.read('orders', 100, 1)")
        session.execute(
            "select pgmq.purge_queue('orders')" if not system.is_upstream else "select pgmq.pop('orders')"
        )
        return pages

    def cycle() -> None:
        send(session, "orders", 100)
        session.execute("select count(*) from pgmq.read('orders', 100, 100)")
        session.execute("select pgmq.delete('orders', array(select msg_id from pgmq.q_orders))")

    cycle()
    before = cost()
    holder = system.connect()
    with holder.transaction():
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from pgmq.meta")
        for _ in range(20):
            cycle()
        after = cost()
    # Batches move the bound with every 1,024 ids: so many dead rows, on some thirty pages, are passed at most.
    assert after > before + MANY if system.is_upstream else after < before + 60, (before, after)


@pytest.mark.parametrize("read", ["read_grouped", "read_grouped_rr", "read_grouped_head"])
def test_w11_a_grouped_read_costs_the_same_whatever_waits(
    read: str, system: System, session: Connection
) -> None:
    def cost(queue: str, n: int) -> int:
        session.execute("select pgmq.create(%s)", [queue])
        session.execute(
            "select count(*) from pgmq.send_batch(%s, array(select to_jsonb(repeat('x', 200))"
            " from generate_series(1, %s)), array(select jsonb_build_object('x-pgmq-group', n %% 50)"
            " from generate_series(1, %s) n))",
            [queue, n, n],
        )
        return pages_touched(session, f"select * from pgmq.{read}('{queue}', 100, 1)")

    few, many = cost("small", 2000), cost("large", 10000)
    assert many > 3 * few if system.is_upstream else many < few + 100, (few, many)


def test_w16_metrics_count_messages_by_their_narrow_rows(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    send(session, "orders", 5000)
    pages = pages_touched(session, "select * from pgmq.metrics('orders')")
    assert pages > 150 if system.is_upstream else pages < 200, pages
    assert one(session, "select queue_length from pgmq.metrics('orders')") == 5000


def test_w17_a_conditional_read_looks_at_visible_messages_only(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    send(session, "orders", 5000, delay=1000)
    session.execute("select pgmq.send('orders', '{\"a\": 1}')")
    pages = pages_touched(session, "select * from pgmq.read('orders', 100, 1, '{\"a\": 1}')")
    assert pages > MANY if system.is_upstream else pages < FEW, pages
