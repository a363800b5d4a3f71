"""A database that is down, slow or restarted while the service runs; secrets stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS
from tests.service.running import patient, service, token
from tests.service.test_waiting import ON_THE_SERVICE, WAIT_MAX, waiters

from spanmq import embedded, schema

# Of a table that nobody looks at but who asks for it, not those either who keep house.
LOCK = "lock table spanmq.category_rule in access exclusive mode"


def error_of(done: httpx.Response) -> tuple[int, str]:
    return done.status_code, done.json()["error"]["code"]


def answers(client: httpx.Client, path: str, status: int) -> Callable[[], bool]:
    return lambda: client.get(path).status_code == status


def test_service_outlives_restarts_of_its_database(tmp_path: Path) -> None:
    with embedded.temporary() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            schema.install(connection)
        do(server.dsn, "select pgmq.create('orders'), pgmq.send('orders', '1')")
        with service(server.dsn, tmp_path, *WAIT_MAX) as running, running.client() as client:
            [message] = client.post("/v1/queues/orders/receive", json={"lease": 300}).json()["messages"]
            # Claims don't wait for the disk: what commits after it and does, takes the claim along.
            do(server.dsn, "create table flushed ()")
            with waiters(running, 3) as asked:
                server.kill()
                for done in (future.result(WAIT_SECONDS) for future in asked):
                    assert error_of(done)[0] == 503
                    assert int(done.headers["Retry-After"]) > 0
            assert error_of(client.get("/health/ready")) == (503, "not_ready")
            assert client.get("/health/live").status_code == 200
            done = client.post("/v1/queues/orders/messages", json={"body": 2})
            assert error_of(done)[0] == 503
            assert str(server.folder) not in done.text
            server.restart()
            wait_until(answers(client, "/health/ready", 200), running.process)
            sent = client.post("/v1/queues/orders/messages", json={"body": 3})
            assert sent.status_code == 201
            # A receipt outlives the restart, too.
            done = client.post("/v1/ack", json={"receipts": [message["receipt"]]})
            assert done.json()["results"][0]["outcome"] == "acked"
            [message] = client.post("/v1/queues/orders/receive", json={"wait": 20}).json()["messages"]
            assert message["body"] == 3


def test_service_starts_before_its_database_and_says_nothing_secret(tmp_path: Path) -> None:
    dsn = "postgresql://somebody:hunter2@127.0.0.1:1/nowhere"
    with service(dsn, tmp_path) as running, running.client() as client:
        assert error_of(client.get("/health/ready")) == (503, "not_ready")
        done = client.post("/v1/queues/orders/messages", json={"body": 1})
        assert error_of(done) == (503, "connection_failed")
        assert "127.0.0.1" not in done.text
        assert "somebody" not in done.text
        running.stop()
        log = running.log.read_text()
    assert "database_away" in log
    assert "hunter2" not in log


def test_slow_database_makes_requests_wait_then_refuses_them(orders: str, tmp_path: Path) -> None:
    options = ("--requests-max", 2, "--pool-size", 4)
    with (
        service(patient(orders), tmp_path, *options) as running,
        running.client() as client,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(2) as threads,
    ):
        blocker.execute(LOCK)
        asked = [threads.submit(client.get, "/v1/category-rules") for _ in range(2)]
        stuck = f"select count(*) >= 2 {ON_THE_SERVICE} and wait_event_type = 'Lock'"
        wait_until(lambda: ask(orders, stuck), running.process)
        done = client.get("/v1/queues")
        assert error_of(done) == (503, "overloaded")
        assert int(done.headers["Retry-After"]) > 0
        assert client.get("/health/live").status_code == 200
        blocker.rollback()
        assert [future.result(WAIT_SECONDS).status_code for future in asked] == [200, 200]
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
    secrets = [token(orders, name) for name in ("greedy", "other")]
    with (
        service(patient(orders), tmp_path, "--requests-per-token-max", 1, tokens=True) as running,
        running.client(secrets[0]) as greedy,
        running.client(secrets[1]) as other,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(1) as threads,
    ):
        blocker.execute(LOCK)
        stuck = threads.submit(greedy.get, "/v1/category-rules")
        waits = f"select count(*) >= 1 {ON_THE_SERVICE} and wait_event_type = 'Lock'"
        wait_until(lambda: ask(orders, waits), running.process)
        done = greedy.get("/v1/queues")
        assert error_of(done) == (429, "too_many_requests")
        assert "Retry-After" in done.headers
        assert other.get("/v1/queues").status_code == 200
        blocker.rollback()
        assert stuck.result(WAIT_SECONDS).status_code == 200
        assert greedy.get("/v1/queues").status_code == 200


def test_request_for_which_there_is_no_connection_is_told_to_come_back(orders: str, tmp_path: Path) -> None:
    with (
        service(patient(orders), tmp_path, "--pool-size", 1, "--pool-timeout", 0.2) as running,
        running.client() as client,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(1) as threads,
    ):
        wait_until(answers(client, "/v1/queues", 200), running.process)
        blocker.execute(LOCK)
        stuck = threads.submit(client.get, "/v1/category-rules")
        waits = f"select count(*) >= 1 {ON_THE_SERVICE} and wait_event_type = 'Lock'"
        wait_until(lambda: ask(orders, waits), running.process)
        done = client.get("/v1/queues")
        assert error_of(done) == (503, "connection_failed")
        assert "all are taken" in done.json()["error"]["message"]
        assert int(done.headers["Retry-After"]) > 0
        blocker.rollback()
        assert stuck.result(WAIT_SECONDS).status_code == 200
        wait_until(answers(client, "/v1/queues", 200), running.process)


@pytest.mark.parametrize("secret", ["spanmq_wrong-secret-0123456789", "hunter2"])
def test_secret_is_in_no_log_and_no_answer(orders: str, tmp_path: Path, secret: str) -> None:
    with (
        service(orders, tmp_path, "--log-level", "debug", tokens=True) as running,
        running.client(secret) as client,
    ):
        assert secret not in client.get("/v1/queues").text
        assert client.get("/v1/queues", params={"token": "x"}).status_code == 401
        running.stop()
        assert secret not in running.log.read_text()
