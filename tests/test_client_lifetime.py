"""Clients that outlive what they stand on: a transaction, a process, the server's presence."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from tests.patience import WAIT_SECONDS
from tests.test_client_connection import run, terminate

from spanmq import link
from spanmq.client import Client
from spanmq.errors import NotPermittedError


@pytest.fixture
def client(database: str) -> Iterator[Client]:
    with Client(database, maintain_interval=None) as client:
        client.create_queue("orders")
        yield client


def test_client_of_a_transaction_ends_with_it(client: Client) -> None:
    with client.transaction() as transaction:
        transaction.send("orders", 1)
    with client.transaction():  # on the same connection
        for call in (
            lambda: transaction.send("orders", 2),
            lambda: transaction.send_batch("orders", range(2_500)),
            lambda: transaction.receive("orders"),
            transaction.flavour,
            lambda: transaction.transaction().__enter__(),
            lambda: transaction.connection,
        ):
            with pytest.raises(NotPermittedError, match="the transaction of this client is over"):
                call()
    assert client.metrics("orders").length == 1


def test_client_that_was_called_before_a_fork_refuses_after_it(database: str, client: Client) -> None:
    process = run(
        "import os, sys\n"
        "from spanmq.client import Client\n"
        "from spanmq.errors import NotPermittedError\n"
        "called, fresh = Client(sys.argv[1], pool_size=1), Client(sys.argv[1])\n"
        "called.send('orders', 'before')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        called.send('orders', 'lost')\n"
        "    except NotPermittedError as error:\n"
        "        fresh.send('orders', error.message)\n"
        "    called.close()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "called.send('orders', 'after')\n",
        database,
        warnings="ignore",  # of threads in a program that forks
    )
    assert process.communicate(timeout=WAIT_SECONDS) == ("", "")
    bodies = [message.body for message in client.peek("orders")]
    assert bodies == [
        "before",
        "the client was opened by another process, and two can't share its connections",
        "after",
    ]


def test_server_that_was_away_for_long_is_found_by_who_waits(
    database: str,
    spanmq_server: str,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(link, "RECONNECT_SECONDS", 0.1)
    name = sql.Identifier(str(conninfo_to_dict(database)["dbname"]))
    client.close()
    with (
        psycopg.connect(spanmq_server, autocommit=True) as observer,
        Client(database, pool_size=1, timeout=WAIT_SECONDS, maintain_interval=None) as patient,
        ThreadPoolExecutor() as threads,
    ):
        with patient.transaction() as transaction:
            pid = transaction.connection.info.backend_pid
        observer.execute(sql.SQL("alter database {} with allow_connections false").format(name))
        terminate(observer, pid)
        waiting = threads.submit(patient.metrics, "orders")
        deadline = time.monotonic() + WAIT_SECONDS
        # Its pool gives up, and more than once.
        while caplog.text.count("reconnection attempt in pool 'spanmq' failed") < 2:
            assert time.monotonic() < deadline
        observer.execute(sql.SQL("alter database {} with allow_connections true").format(name))
        assert waiting.result().length == 0
