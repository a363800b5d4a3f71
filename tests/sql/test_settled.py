"""Which messages are settled, who is notified of it, and what their handlers returned."""

import psycopg
import pytest
from tests.sql.conformance.listening import listening
from tests.sql.queue import Queue, column, one

UNSETTLED = "select * from spanmq.unsettled('orders', %s::bigint[])"


def test_unsettled_is_what_is_in_the_queue(orders: Queue) -> None:
    ids = orders.send(20)
    orders.rows("select pgmq.set_vt('orders', %s::bigint, 3600)", ids[19])
    lease, _ = orders.receive(12)
    orders.settle("ack", lease, ids[2:4])
    orders.settle("reject", lease, ids[4:5])
    orders.settle("nack", lease, ids[5:6], "no", "TRANSIENT", 60.0)
    orders.rows("select pgmq.archive('orders', %s::bigint)", ids[15])
    settled = {*ids[2:5], ids[15], 999}
    assert column(orders.connection, UNSETTLED, [*ids, 999]) == [each for each in ids if each not in settled]
    for _ in column(orders.connection, "select spanmq.redrive('orders', delay => 0)"):
        assert column(orders.connection, UNSETTLED, ids[4:5]) == ids[4:5]


SETTLEMENTS = [
    "select spanmq.ack('orders', %(lease)s, array[1])",
    "select spanmq.ack('orders', %(lease)s, array[1, 2])",
    "select pgmq.delete('orders', 1)",
    "select pgmq.archive('orders', array[1, 2])",
    "select spanmq.reject('orders', %(lease)s, array[1], category => 'BUSINESS')",
    "select spanmq.nack('orders', %(lease)s, array[1], category => 'BUSINESS')",
]


@pytest.mark.parametrize("is_awaited", [True, False])
@pytest.mark.parametrize("settle", SETTLEMENTS)
def test_settlement_notifies_while_a_session_waits(database: str, settle: str, is_awaited: bool) -> None:
    with (
        psycopg.connect(database, autocommit=True) as session,
        listening(database, "spanmq.s_orders") as listener,
    ):
        session.execute("select pgmq.create('orders'), pgmq.send_batch('orders', array['1', '2']::jsonb[])")
        lease = one(session, "select lease_id from spanmq.receive('orders', 2)")
        if is_awaited:
            assert one(session, "select spanmq.await_settled('ORDERS', 60)") == "spanmq.s_orders"
        session.execute(settle.encode(), {"lease": lease})
        assert bool(listener.heard(session)) is is_awaited


def test_results_are_kept_for_a_time(orders: Queue) -> None:
    store = "select spanmq.store_result('orders', %s, %s::jsonb, %s)"
    for arguments in ((1, '"old"', 60), (1, '{"a": 1}', 60), (2, "null", 1e-6)):
        orders.rows(store, *arguments)
    results = "select msg_id, result from spanmq.get_results('orders', array[1, 2, 3])"
    assert orders.rows(results) == [(1, {"a": 1})]
    orders.rows("select spanmq.maintain()")
    assert orders.value("select count(*) from spanmq_core.result") == 1
    orders.rows("select pgmq.drop_queue('orders')")
    assert orders.value("select count(*) from spanmq_core.result") == 0
