"""What is popped is gone when its answer is on its way, and not before."""

from pathlib import Path

import httpx
import psycopg
from service.tests.running import patient, service
from tests.cli.program import ask, do, wait_until

POPPING = (
    "select count(*) from pg_stat_activity where application_name = 'spanmq service' and state <> 'idle'"
    " and datname = current_database() and query like '%pgmq.pop%'"
)


def test_client_that_hung_up_before_its_answer_takes_nothing(orders: str, tmp_path: Path) -> None:
    do(orders, "select pgmq.send('orders', '1')")
    with service(patient(orders), tmp_path) as running, psycopg.connect(orders) as other:
        other.execute("lock table spanmq_core.queue in access exclusive mode")
        with running.dial() as connection:
            connection.sendall(b"POST /v1/queues/orders/pop HTTP/1.1\r\nHost: localhost\r\n\r\n")
            wait_until(lambda: ask(orders, f"{POPPING} and wait_event_type = 'Lock'") == 1)
        with running.client() as client:
            # Answered after the end of the other connection was seen.
            assert client.get("/health/live").status_code == 200
        other.commit()
        wait_until(lambda: ask(orders, POPPING) == 0)
        assert ask(orders, "select count(*) from pgmq.q_orders") == 1


def test_messages_stay_if_one_of_them_can_not_be_read_or_written(
    http: httpx.Client, queue: str, service_database: str
) -> None:
    for depth in (900, 990, 5_000):
        headers = f"('{{\"a\":' || repeat('[', {depth}) || repeat(']', {depth}) || '}}')::jsonb"
        do(service_database, f"select pgmq.send('{queue}', '0'), pgmq.send('{queue}', '1', {headers})")
        count = f"select count(*) from pgmq.q_{queue}"
        before = ask(service_database, count)
        answer = http.post(f"/v1/queues/{queue}/pop", json={"quantity": 10})
        assert answer.status_code in (200, 422), answer.text
        assert ask(service_database, count) == (0 if answer.status_code == 200 else before)
    assert answer.json()["error"]["code"] == "invalid_body"
    answer = http.get(f"/v1/queues/{queue}/messages")
    assert "spanmq.unopened" in answer.json()["messages"][-1]["body"]
