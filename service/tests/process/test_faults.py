"""A database that is down, slow or restarted while the service runs; secrets stay where they are."""

import socket
from pathlib import Path

import httpx
import psycopg
import pytest
from service.tests.running import service, service_process
from service.tests.test_overload import answers, error_of
from service.tests.test_waiting import WAIT_MAX, waiters
from tests.cli.program import do, wait_until
from tests.cli.test_log_lines import LINE
from tests.patience import WAIT_SECONDS

from spanmq import embedded, schema


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
            wait_until(answers(client, "/health/ready", 200))
            sent = client.post("/v1/queues/orders/messages", json={"body": 3})
            assert sent.status_code == 201
            # A receipt outlives the restart, too.
            done = client.post("/v1/ack", json={"receipts": [message["receipt"]]})
            assert done.json()["results"][0]["outcome"] == "acked"
            [message] = client.post("/v1/queues/orders/receive", json={"wait": 20}).json()["messages"]
            assert message["body"] == 3
        log = running.log.read_text()
    assert " psycopg.pool message=" in log
    assert [line for line in log.splitlines() if not LINE.fullmatch(line)] == []


def test_service_starts_before_its_database_and_says_nothing_secret(tmp_path: Path) -> None:
    dsn = "postgresql://somebody:hunter2@127.0.0.1:1/nowhere"
    with service_process(dsn, tmp_path) as running, running.client() as client:
        assert error_of(client.get("/health/ready")) == (503, "not_ready")
        done = client.post("/v1/queues/orders/messages", json={"body": 1})
        assert error_of(done) == (503, "connection_failed")
        assert "127.0.0.1" not in done.text
        assert "somebody" not in done.text
        with socket.create_connection(("127.0.0.1", httpx.URL(running.address).port or 0)) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 400"
        running.stop()
        log = running.log.read_text()
    assert "database_away" in log
    assert " uvicorn.error message=" in log
    assert [line for line in log.splitlines() if not LINE.fullmatch(line)] == []
    assert "hunter2" not in log


@pytest.mark.parametrize("secret", ["spanmq_wrong-secret-0123456789", "hunter2"])
def test_secret_is_in_no_log_and_no_answer(orders: str, tmp_path: Path, secret: str) -> None:
    with (
        service_process(orders, tmp_path, "--log-level", "debug", tokens=True) as running,
        running.client(secret) as client,
    ):
        assert secret not in client.get("/v1/queues").text
        assert client.get("/v1/queues", params={"token": "x"}).status_code == 401
        running.stop()
        assert secret not in running.log.read_text()
