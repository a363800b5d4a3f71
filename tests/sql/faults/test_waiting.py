"""W13, W23: purge and create wait for others, and others wait for them."""

from tests.sql.conftest import System
from tests.sql.queue import Connection, one


def test_w13_purge_waits_for_no_reader_and_no_sender_for_purge(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute("select pgmq.send('orders', '1')")
    reader, purger, sender = system.connect(), system.connect(), system.connect()
    with reader.transaction():
        reader.execute("select count(*) from pgmq.q_orders")
        purged = system.meets(purger, "select pgmq.purge_queue('orders')")
        sent = system.meets(sender, "select pgmq.send('orders', '2')")
    assert (purged.result(), sent.result()) == ([(1,)], [(2,)])


def test_w23_our_lock_keys_have_64_bits(system: System, session: Connection) -> None:
    with session.transaction():
        session.execute("select pgmq.acquire_queue_lock('orders')")
        is_wide = one(
            session,
            "select classid::bigint not in (0, 4294967295) from pg_locks"
            " where locktype = 'advisory' and pid = pg_backend_pid()",
        )
    assert is_wide is not system.is_upstream
