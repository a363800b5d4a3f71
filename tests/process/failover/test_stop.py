"""A worker ends in good order although its server acknowledges everything and answers nothing."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.patience import WAIT_SECONDS, wait_until
from tests.process.worker.proxy import Proxy, proxying

from spanmq.client import Client

PROGRAM = """
import asyncio, sys
from spanmq import Worker

async def with_connection(message, connection):
    await connection.execute("select 1")
    print("handled", flush=True)

def plain(message):
    print("handled", flush=True)

Worker("orders", globals()[sys.argv[2]], dsn=sys.argv[1], grace=5.0).run()
print("ended", flush=True)
"""


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    parts = conninfo_to_dict(database)
    with proxying(f"{parts['host']}/.s.PGSQL.{parts['port']}") as opened:
        yield opened


@pytest.mark.parametrize("handler", ["plain", "with_connection"])
def test_worker_ends_while_its_server_never_answers(database: str, proxy: Proxy, handler: str) -> None:
    parts = conninfo_to_dict(database)
    dsn = make_conninfo(
        f"user={parts['user']} dbname={parts['dbname']} connect_timeout=2", host="127.0.0.1", port=proxy.port
    )
    with Client(database) as client:
        client.queues.create("orders")
        client.send("orders", 1)
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM, dsn, handler],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "handled\n"
            wait_until(lambda: client.queues.metrics("orders").length == 0, process)
            proxy.set("stall")
            client.send("orders", 2)
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (0, "ended\n")
    for trouble in ("Traceback", "was destroyed", "never retrieved", "didn't stop"):
        assert trouble not in err
