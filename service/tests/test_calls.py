"""The calls that a service of queues is made of: send, receive, ack, nack, pop."""

from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from service.tests.running import patient, service
from tests.cli.program import ask, do, wait_until

from spanmq.client import Client


class Calls:
    """The calls on one queue."""

    def __init__(self, http: httpx.Client, queue: str) -> None:
        self.http = http
        self.path = f"/v1/queues/{queue}"

    def send(self, body: object, **options: object) -> int:
        done = self.http.post(f"{self.path}/messages", json={"body": body, **options})
        assert done.status_code == 201, done.text
        return int(done.json()["message_id"])

    def receive(self, quantity: int = 10, **options: object) -> list[dict[str, Any]]:
        done = self.http.post(f"{self.path}/receive", json={"quantity": quantity, **options})
        assert done.status_code == 200, done.text
        return list(done.json()["messages"])

    def settle(self, how: str, messages: list[dict[str, Any]], **options: object) -> list[str]:
        receipts = [message["receipt"] for message in messages]
        done = self.http.post(f"/v1/{how}", json={"receipts": receipts, **options})
        assert done.status_code == 200, done.text
        results = done.json()["results"]
        assert [each["receipt"] for each in results] == receipts
        return [each["outcome"] for each in results]


@pytest.fixture
def calls(http: httpx.Client, queue: str) -> Calls:
    return Calls(http, queue)


def test_batch_is_sent_in_order_and_has_a_result_for_each(calls: Calls) -> None:
    batch = [{"body": number, "priority": 5 if number == 1 else 0} for number in range(4)]
    done = calls.http.post(f"{calls.path}/messages/batch", json={"messages": batch})
    ids = [each["message_id"] for each in done.json()["results"]]
    assert (done.status_code, ids) == (201, sorted(ids))
    calls.send("later", delay=3600)
    # Of the higher priority is what comes first.
    assert [message["body"] for _ in range(5) for message in calls.receive(1)] == [1, 0, 2, 3]


def test_batch_with_one_bad_message_sends_none(calls: Calls) -> None:
    batch = [{"body": 1}, {"body": 2, "delay": 1}, {"body": "\0", "delay": 0}]
    done = calls.http.post(f"{calls.path}/messages/batch", json={"messages": batch})
    assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_body")
    assert calls.receive() == []


def test_body_that_does_not_fit_the_schema_is_refused(calls: Calls) -> None:
    path = f"{calls.path}/schema"
    none = {"schema": None, "is_checked": False}
    assert calls.http.get(path).json() == none
    schema = {"type": "object", "required": ["order"]}
    done = calls.http.put(path, json=schema, params={"checked": "true"})
    assert (done.status_code, done.json()) == (200, {"schema": schema, "is_checked": True})
    assert calls.http.get(path).json() == done.json()
    for where, given in (
        ("", {"body": {}}),
        ("/batch", {"messages": [{"body": {"order": 1}}, {"body": {}}]}),
    ):
        refused = calls.http.post(f"{calls.path}/messages{where}", json=given)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (422, "schema_mismatch")
        assert "$.order is missing" in error["message"]
    assert calls.receive() == []
    bad = calls.http.put(path, json={"items": {"type": "objekt"}})
    assert (bad.status_code, bad.json()["error"]["code"]) == (422, "invalid_argument")
    assert "not valid at $.items.type" in bad.json()["error"]["message"]
    assert calls.http.put(path, json=[1]).status_code == 422
    assert calls.http.delete(path).json() == calls.http.get(path).json() == none
    calls.send({})


def test_message_that_is_nacked_without_requeue_is_dead(
    calls: Calls, service_database: str, queue: str
) -> None:
    calls.send(1)
    [message] = calls.receive(lease=60)
    assert calls.settle("extend", [message], seconds=500) == ["extended"]
    assert ask(service_database, f"select vt > clock_timestamp() + interval '400 s' from pgmq.q_{queue}")
    assert calls.settle("nack", [message], error="bad", requeue=False) == ["dead"]
    assert calls.settle("extend", [message], seconds=500) == ["stale"]
    assert ask(service_database, f"select count(*) from spanmq.dead_letters('{queue}')") == 1


def test_bucket_is_closed_for_who_receives_next(calls: Calls, service_database: str, queue: str) -> None:
    calls.send(1)
    calls.send(2)
    first = calls.receive(1)
    assert calls.settle("close-bucket", first, seconds=60) == ["unlimited"]
    do(service_database, f"""select spanmq.set_policy('{queue}', '{{"rate_limit": 1000}}')""")
    assert calls.settle("close-bucket", first, seconds=60) == ["closed"]
    assert calls.receive() == []
    # It is held as before.
    assert calls.settle("ack", first) == ["acked"]
    assert calls.settle("close-bucket", first, seconds=60) == ["stale"]


def test_forged_receipt_is_refused_before_anything_is_done(calls: Calls) -> None:
    calls.send(1)
    [message] = calls.receive()
    done = calls.http.post("/v1/ack", json={"receipts": [message["receipt"], "AAAA"]})
    assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_argument")
    assert calls.settle("ack", [message]) == ["acked"]


def test_body_keeps_its_digits(calls: Calls, service_database: str, queue: str) -> None:
    ask(service_database, f"select pgmq.send('{queue}', '12345678901234567890.123456789')")
    done = calls.http.post(f"{calls.path}/receive", json={})
    assert "12345678901234567890.123456789" in done.text


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain"])
def test_body_that_does_not_say_it_is_json_is_told_so(calls: Calls, kind: str) -> None:
    done = calls.http.post(f"{calls.path}/messages", content='{"body": 1}', headers={"Content-Type": kind})
    assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_argument")
    assert done.json()["error"]["hint"] == "Send Content-Type: application/json."
    assert calls.receive() == []


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/none", "/health/ready", "/docs"])
def test_head_has_the_headers_of_get_and_no_body(http: httpx.Client, path: str) -> None:
    got, head = http.get(path), http.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["Content-Length"] == str(len(got.content))
    assert http.head("/v1/ack").status_code == 405


def test_pending_message_names_what_its_queue_waits_for(
    http: httpx.Client, service_database: str, queue: str
) -> None:
    with Client(service_database) as client:
        message_id = client.send(queue, 1)

        def state() -> tuple[str, str | None]:
            found = http.get(f"/v1/queues/{queue}/messages/{message_id}/state").json()
            return found["state"], found["waits_for"]

        assert state() == ("pending", "no_worker")
        client.queues.pause(queue)
        assert state() == ("pending", "paused")
        client.queues.resume(queue)
        client.cancel(queue, message_id)
        assert state() == ("cancelled", None)


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
