"""The process of the service: the connections that it promises, a log that holds up nothing, and its end."""

import json
import resource
import signal
import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from service.tests.running import patient, service, service_process
from service.tests.sqs.conftest import client_of
from service.tests.sqs.test_moves import MESSAGES, bodies, stage, start, task
from service.tests.test_waiting import POLL_SECONDS, WAIT_MAX, received, waiters
from tests.cli.program import ask, do, started, wait_until
from tests.patience import WAIT_SECONDS

from spanmq.client import Client
from spanmq_service.settings import Settings

USUAL = 1_024
# A pipe takes 64 kB; each of these is a line of some eighty bytes.
BAD_REQUESTS = 1_500
BLOCKED = """
    select count(*) from pg_stat_activity where datname = current_database()
    and application_name = 'spanmq service' and wait_event_type = 'Lock' and query ~ 'spanmq.send_messages'
"""


def is_refused(address: str) -> bool:
    """Return whether nobody listens there any more."""
    place = urlsplit(address)
    try:
        socket.create_connection((place.hostname, place.port), timeout=WAIT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    return False


def test_service_may_open_as_many_files_as_its_limits_need(orders: str, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    settings = Settings(dsn="")
    wanted = settings.requests_max + settings.waiting_max
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine lets nobody open more than {hard} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL, hard))
    try:
        with service_process(orders, tmp_path) as running:
            found, _ = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found >= wanted


def test_request_under_way_is_finished_before_the_end(orders: str, tmp_path: Path) -> None:
    text = "select spanmq.send_messages('orders', '{1}', ordered => true)"
    given = {"body": 2, "ordered": True}
    with (
        service_process(patient(orders), tmp_path, "--grace", 600) as running,
        running.client() as client,
        psycopg.connect(orders) as holder,
        ThreadPoolExecutor(1) as threads,
    ):
        holder.execute(text.encode())
        asked = threads.submit(client.post, "/v1/queues/orders/messages", json=given)
        wait_until(lambda: bool(ask(orders, BLOCKED)))
        running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(running.address))
        assert (asked.done(), running.process.poll()) == (False, None)
        holder.commit()
        assert asked.result(WAIT_SECONDS).status_code == 201
        assert running.process.wait(WAIT_SECONDS) == 0


def test_service_goes_on_when_nobody_reads_its_log(orders: str) -> None:
    with started("serve", "--port", 0, "--json", "--without-tokens", dsn=orders) as process:
        address = json.loads(process.stdout.readline())["address"]
        place = urlsplit(address)
        for _ in range(BAD_REQUESTS):
            with socket.create_connection((place.hostname, place.port), timeout=WAIT_SECONDS) as connection:
                connection.sendall(b"nonsense\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 400"
        with httpx.Client(base_url=address, trust_env=False, timeout=WAIT_SECONDS) as client:
            assert client.get("/v1/queues").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0


def test_stop_answers_who_waits_and_ends_well(orders: str, tmp_path: Path) -> None:
    # Waiters would wait for as long as there is grace.
    with (
        service_process(orders, tmp_path, *WAIT_MAX, "--grace", POLL_SECONDS) as running,
        waiters(running, 5) as asked,
    ):
        running.stop()
        assert [received(future) for future in asked] == [[]] * 5


def test_kill_with_waiting_clients_loses_nothing(orders: str, tmp_path: Path) -> None:
    count = 300
    sent = threading.Event()

    def send() -> None:
        with psycopg.connect(orders, autocommit=True) as connection:
            for number in range(count):
                connection.execute("select pgmq.send('orders', to_jsonb(%s))", [number])
                if number == count // 3:
                    sent.set()

    seen: set[int] = set()
    with (
        service_process(orders, tmp_path, *WAIT_MAX) as running,
        waiters(running, 20, lease=1, quantity=5) as asked,
    ):
        sender = threading.Thread(target=send)
        sender.start()
        assert sent.wait(WAIT_SECONDS)
        running.kill()
        sender.join()
        for future in asked:
            # Some were answered before the kill; what they got is not acked, and comes again.
            error = future.exception(WAIT_SECONDS)
            assert error is None or isinstance(error, httpx.TransportError)
    with service(orders, tmp_path) as again, again.client() as client, Client(orders) as keeper:
        while keeper.queues.metrics("orders").length:
            taken = client.post("/v1/queues/orders/receive", json={"quantity": 100, "wait": 5}).json()
            receipts = [message["receipt"] for message in taken["messages"]]
            if receipts:
                outcomes = client.post("/v1/ack", json={"receipts": receipts}).json()["results"]
                assert {each["outcome"] for each in outcomes} == {"acked"}
            seen |= {message["body"] for message in taken["messages"]}
    assert seen == set(range(count))


def test_task_of_a_service_that_was_killed_is_gone_on_with(database: str, tmp_path: Path) -> None:
    with service_process(database, tmp_path) as first:
        sqs = client_of(first.address)
        _, _, arn = stage(sqs)
        start(sqs, arn, MaxNumberOfMessagesPerSecond=1)
        wait_until(lambda: len(bodies(database, "back")) >= 1)
        first.kill()
    moved = len(bodies(database, "back"))
    assert moved < MESSAGES
    do(database, "update spanmq_core.sqs_move set rate = null")
    folder = tmp_path / "second"
    folder.mkdir()
    with service(database, folder) as second:
        again = client_of(second.address)
        wait_until(lambda: task(again, arn)["Status"] == "COMPLETED")
        assert task(again, arn)["ApproximateNumberOfMessagesMoved"] == MESSAGES
    assert bodies(database, "back") == Counter(str(n) for n in range(MESSAGES))
    assert bodies(database, "dead") == Counter()
