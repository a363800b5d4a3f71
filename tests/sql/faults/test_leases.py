"""W5: a fault of the interface itself, which PGMQ's call keeps."""

from tests.patience import wait_until
from tests.sql.conftest import System
from tests.sql.queue import Connection


def test_w5_a_poll_holds_a_snapshot_until_messages_come(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    poller = system.connect()
    found = system.start(poller, "select msg_id from pgmq.read_with_poll('orders', 100, 1, 60, 10)")
    held = "select backend_xmin is not null from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
    # Documented: whoever wants to wait for messages polls from outside, or listens. The row may tell of a wait
    # that began after it was seen that there was no snapshot yet.
    wait_until(lambda: session.execute(held, [poller.info.backend_pid]).fetchone() == (True,))
    session.execute("select pgmq.send('orders', '1')")
    assert found.result() == [(1,)]
