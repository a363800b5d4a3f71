"""More than the service, its database or a queue can take now: requests wait, then they are told to come back."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from botocore.exceptions import ClientError
from service.tests.running import Running, patient, service
from service.tests.sqs.conftest import client_of
from service.tests.test_waiting import ON_THE_SERVICE
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

# Of a table that nobody looks at but who asks for it, not those either who keep house.
LOCK = "lock table spanmq_core.category_rule in access exclusive mode"


STUCK = f"select count(*) >= {{}} {ON_THE_SERVICE} and wait_event_type = 'Lock'"


@contextmanager
def stuck(dsn: str, *clients: httpx.Client) -> Iterator[None]:
    """Let a request of each client wait for a lock while the block runs; afterwards they are answered."""
    with psycopg.connect(dsn) as blocker, ThreadPoolExecutor(len(clients)) as threads:
        blocker.execute(LOCK)
        # maintain() may use the pool's only connection for a moment: then it is asked again.
        asked = [threads.submit(wait_until, answers(client, "/v1/category-rules", 200)) for client in clients]
        wait_until(lambda: ask(dsn, STUCK.format(len(clients))))
        yield
        blocker.rollback()
        for each in asked:
            each.result(WAIT_SECONDS)


def error_of(done: httpx.Response) -> tuple[int, str]:
    return done.status_code, done.json()["error"]["code"]


def answers(client: httpx.Client, path: str, status: int) -> Callable[[], bool]:
    return lambda: client.get(path).status_code == status


def test_slow_database_makes_requests_wait_then_refuses_them(orders: str, tmp_path: Path) -> None:
    options = ("--requests-max", 2, "--pool-size", 4)
    with service(patient(orders), tmp_path, *options) as running, running.client() as client:
        with stuck(orders, client, client):
            done = client.get("/v1/queues")
            assert error_of(done) == (503, "overloaded")
            assert int(done.headers["Retry-After"]) > 0
            assert client.get("/health/live").status_code == 200
        assert client.get("/v1/queues").status_code == 200


def test_statement_that_takes_too_long_is_given_up(orders: str, tmp_path: Path) -> None:
    with (
        service(orders, tmp_path, "--statement-timeout", 1) as running,
        running.client() as client,
        psycopg.connect(orders) as blocker,
    ):
        blocker.execute(LOCK)
        done = client.get("/v1/category-rules")
        assert error_of(done) == (503, "statement_cancelled")
        assert "Retry-After" in done.headers


def test_token_with_too_many_requests_at_once_leaves_others_their_turn(orders: str, tmp_path: Path) -> None:
    with (
        service(patient(orders), tmp_path, "--requests-per-token-max", 1, tokens=True) as running,
        running.clients(orders, "greedy", "other") as [greedy, other],
    ):
        with stuck(orders, greedy):
            done = greedy.get("/v1/queues")
            assert error_of(done) == (429, "too_many_requests")
            assert "Retry-After" in done.headers
            assert other.get("/v1/queues").status_code == 200
        assert greedy.get("/v1/queues").status_code == 200


def test_without_a_free_connection_the_service_is_ready_and_requests_are_told_to_come_back(
    orders: str, tmp_path: Path
) -> None:
    options = ("--pool-size", 1, "--pool-timeout", 0.2)
    with service(patient(orders), tmp_path, *options) as running, running.client() as client:
        wait_until(answers(client, "/v1/queues", 200))
        # It connects for this at first, which may take longer than the pool's time.
        wait_until(answers(client, "/health/ready", 200))
        with stuck(orders, client):
            done = client.get("/v1/queues")
            assert error_of(done) == (503, "connection_failed")
            assert "all are taken" in done.json()["error"]["message"]
            assert int(done.headers["Retry-After"]) > 0
            assert client.get("/health/ready").status_code == 200
        wait_until(answers(client, "/v1/queues", 200))


@pytest.fixture
def full(service_database: str, queue: str) -> str:
    """A queue with room for two, in which two are."""
    do(service_database, f"select spanmq.set_policy('{queue}', '{{\"max_backlog\": 2}}')")
    do(service_database, f"select pgmq.send('{queue}', '1'), pgmq.send('{queue}', '2')")
    return queue


def test_send_is_told_to_come_back(http: httpx.Client, service_database: str, full: str) -> None:
    path = f"/v1/queues/{full}/messages"
    for where, given in ((path, {"body": 3}), (f"{path}/batch", {"messages": [{"body": 3}, {"body": 4}]})):
        refused = http.post(where, json=given)
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
    assert ask(service_database, f"select count(*) from pgmq.q_{full}") == 2
    assert len(http.post(f"/v1/queues/{full}/pop", json={}).json()["messages"]) == 1
    # A queue that was found full is believed to be for a moment.
    while (sent := http.post(path, json={"body": 3})).status_code == 429:
        assert int(sent.headers["retry-after"]) >= 1
    assert sent.status_code == 201


def test_sqs_client_is_throttled(shared: Running, service_database: str, full: str) -> None:
    sqs = client_of(shared.address)
    url = sqs.get_queue_url(QueueName=full)["QueueUrl"]
    with pytest.raises(ClientError) as refused:
        sqs.send_message(QueueUrl=url, MessageBody="3")
    assert refused.value.response["Error"]["Code"] == "RequestThrottled"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    assert refused.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
    assert ask(service_database, f"select count(*) from pgmq.q_{full}") == 2


def test_requests_of_all_tokens_together_have_a_limit(orders: str, tmp_path: Path) -> None:
    with (
        service(patient(orders), tmp_path, "--requests-max", 2, tokens=True) as running,
        running.clients(orders, "one", "two", "three") as [one, two, three],
    ):
        with stuck(orders, one, two):
            done = three.get("/v1/queues")
            assert error_of(done) == (503, "overloaded")
            assert "Retry-After" in done.headers
        assert three.get("/v1/queues").status_code == 200
