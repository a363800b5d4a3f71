"""`/health/ready`: whether the database answers and takes writes, at this moment."""

import os
import signal
from pathlib import Path

import psycopg
from psycopg import sql
from service.tests.running import service
from service.tests.test_overload import answers, error_of
from tests.cli.program import wait_until

READY = "/health/ready"
SERVICES = "from pg_stat_activity where datname = current_database() and application_name = 'spanmq service'"


def test_service_is_not_ready_while_its_database_is_read_only(orders: str, tmp_path: Path) -> None:
    with (
        service(orders, tmp_path) as running,
        running.client() as client,
        psycopg.connect(orders, autocommit=True) as operator,
    ):
        wait_until(answers(client, READY, 200))
        name = sql.Identifier(operator.info.dbname)
        operator.execute(sql.SQL("alter database {} set default_transaction_read_only = on").format(name))
        operator.execute(f"select pg_terminate_backend(pid, 20000) {SERVICES}".encode())
        wait_until(
            lambda: client.get(READY).json().get("error", {}).get("message") == "the database is read-only"
        )
        assert error_of(client.get(READY)) == (503, "not_ready")
        assert error_of(client.post("/v1/queues/orders/messages", json={"body": 1})) == (
            503,
            "server_read_only",
        )
        assert client.get("/health/live").status_code == 200
        operator.execute("set default_transaction_read_only = off")
        operator.execute(sql.SQL("alter database {} reset default_transaction_read_only").format(name))
        wait_until(answers(client, READY, 200))
        assert client.post("/v1/queues/orders/messages", json={"body": 2}).status_code == 201


def test_service_is_ready_again_although_its_last_probe_hangs(orders: str, tmp_path: Path) -> None:
    probing = f"select pid {SERVICES} and state = 'idle' and query like '%spanmq.version()%'"
    with (
        service(orders, tmp_path) as running,
        running.client() as client,
        psycopg.connect(orders, autocommit=True) as operator,
    ):
        wait_until(answers(client, READY, 200))
        found = operator.execute(probing.encode()).fetchone()
        assert found is not None
        # Its session does nothing more, and its kernel acknowledges what arrives.
        os.kill(found[0], signal.SIGSTOP)
        try:
            assert error_of(client.get(READY)) == (503, "not_ready")
            wait_until(answers(client, READY, 200))
        finally:
            os.kill(found[0], signal.SIGCONT)
