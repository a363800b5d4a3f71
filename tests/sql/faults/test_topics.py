"""W24: routing that looks at every binding there is."""

import time

from tests.sql.faults.conftest import Connection, System, column

BINDINGS = 2000


def test_w24_routing_skips_patterns_of_other_words(system: System, session: Connection) -> None:
    session.execute("select pgmq.create('orders')")
    session.execute(
        f"select pgmq.bind_topic('customer-' || n || '.*.done', 'orders') from generate_series(1, {BINDINGS}) n"
    )
    took = []
    for n in range(5):
        started_at = time.perf_counter()
        assert session.execute("select pgmq.send_topic(%s, '1')", [f"customer-{n + 1}.x.done"]).fetchall() == [(1,)]
        took.append(time.perf_counter() - started_at)
    print(system.is_upstream, min(took), column(session, "select count(*) from pgmq.q_orders"))
