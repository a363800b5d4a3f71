"""Requests that wait for messages: they hold nothing, are woken in turn, and lose nothing when they end."""

import asyncio
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.tests.running import Running, always, service
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient
from spanmq.model import Message
from spanmq_service.waiting import Waiting

# Of this database: the services that other tests share are on the same server.
ON_THE_SERVICE = (
    "from pg_stat_activity where application_name = 'spanmq service' and datname = current_database()"
)


# Headers that are deeper than Python can read.
DEEP = """('{"a":' || repeat('[', 5000) || repeat(']', 5000) || '}')::jsonb"""
# Longer than a test may take.
POLL_SECONDS = 600
WAIT_MAX = ("--wait-max", POLL_SECONDS)


@pytest.fixture
def running(orders: str, tmp_path: Path) -> Iterator[Running]:
    """A service that lets requests wait for long."""
    with service(orders, tmp_path, *WAIT_MAX) as started:
        yield started


def waiting(running: Running) -> int:
    with running.client() as client:
        found = re.search(r"^spanmq_requests_waiting (\d+)", client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found.group(1))


@contextmanager
def waiters(running: Running, count: int, **options: object) -> Iterator[list[Future[httpx.Response]]]:
    """Let so many clients wait, and go on when they do."""
    given = {"wait": POLL_SECONDS, **options}
    with ThreadPoolExecutor(count) as threads, running.client(limits=httpx.Limits()) as client:
        asked = [threads.submit(client.post, "/v1/queues/orders/receive", json=given) for _ in range(count)]
        wait_until(lambda: waiting(running) == count)
        yield asked


def received(future: Future[httpx.Response]) -> list[dict[str, Any]]:
    done = future.result(WAIT_SECONDS)
    assert done.status_code == 200, done.text
    return list(done.json()["messages"])


def test_waiters_are_served_each_with_its_own_message(running: Running, orders: str) -> None:
    with waiters(running, 3) as asked:
        do(orders, "select pgmq.send('orders', to_jsonb(n)) from generate_series(1, 3) n")
        bodies = sorted(message["body"] for future in asked for message in received(future))
    assert bodies == [1, 2, 3]


def test_who_waits_holds_no_connection(orders: str, tmp_path: Path) -> None:
    with service(orders, tmp_path, *WAIT_MAX, "--pool-size", 1) as running, waiters(running, 40) as asked:
        # One of the pool, one that listens; others may be about to end.
        wait_until(lambda: ask(orders, f"select count(*) {ON_THE_SERVICE}") <= 3)
        with running.client() as client:
            for number in range(40):
                sent = client.post("/v1/queues/orders/messages", json={"body": number})
                assert sent.status_code == 201
        assert sorted(message["body"] for each in asked for message in received(each)) == list(range(40))


def test_waiter_is_answered_with_nothing_at_its_time(running: Running) -> None:
    with running.client() as client:
        done = client.post("/v1/queues/orders/receive", json={"wait": 0.05})
        assert (done.status_code, done.json()) == (200, {"messages": []})
        done = client.post("/v1/queues/orders/receive", json={"wait": POLL_SECONDS + 1})
        assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_argument")


def test_waiter_that_hung_up_gets_nothing(running: Running, orders: str) -> None:
    body = b'{"wait": 600, "lease": 3600}'
    head = f"POST /v1/queues/orders/receive HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    with running.dial() as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        wait_until(lambda: waiting(running) == 1)
    wait_until(lambda: waiting(running) == 0)
    do(orders, "select pgmq.send('orders', '1')")
    with running.client() as client:
        [message] = client.post("/v1/queues/orders/receive", json={"wait": 20}).json()["messages"]
    assert message["attempt"] == 1


@pytest.mark.parametrize("how", ["gone", "cancelled", "cancelled long ago"])
def test_message_taken_for_who_just_left_is_given_back(orders: str, how: str) -> None:
    async def run() -> tuple[list[Message], list[Message]]:
        async with AsyncClient(orders) as client:
            line = Waiting(client)
            left = asyncio.Event()

            async def take() -> list[Message]:
                messages = await client.receive("orders", lease=3600)
                if how == "gone":
                    left.set()
                else:
                    task.cancel()
                if how == "cancelled long ago":
                    await asyncio.wait({task})
                return messages

            task = asyncio.create_task(line.wait("orders", take, 20, left.wait(), permit=always))
            [result] = await asyncio.gather(task, return_exceptions=True)
            assert result == [] if how == "gone" else isinstance(result, asyncio.CancelledError)
            await line.join()
            return [], await client.receive("orders", wait=WAIT_SECONDS)

    do(orders, "select pgmq.send('orders', '1')")
    nothing, messages = asyncio.run(run())
    assert (nothing, [message.attempt for message in messages]) == ([], [1])


def test_waiters_of_a_queue_that_is_dropped_are_told(running: Running, orders: str) -> None:
    with waiters(running, 2) as asked:
        do(orders, "select pgmq.drop_queue('orders')")
        done = [future.result(WAIT_SECONDS) for future in asked]
    assert [each.json()["error"]["code"] for each in done] == ["queue_not_found"] * 2


def test_message_that_cannot_be_read_is_the_error_of_one_waiter(running: Running, orders: str) -> None:
    do(orders, "select spanmq.set_policy('orders', '{\"max_attempts\": 1}')")
    with waiters(running, 2) as asked:
        do(orders, f"select pgmq.send('orders', '1', {DEEP})")
        wait_until(lambda: any(future.done() for future in asked))
        do(orders, "select pgmq.send('orders', '2')")
        done = [future.result(WAIT_SECONDS) for future in asked]
    failed, served = sorted(done, key=lambda each: -each.status_code)
    assert (failed.status_code, failed.json()["error"]["code"]) == (422, "invalid_body")
    assert [message["body"] for message in served.json()["messages"]] == [2]


def test_more_waiters_than_the_limit_are_sent_away(orders: str, tmp_path: Path) -> None:
    with service(orders, tmp_path, *WAIT_MAX, "--waiting-max", 2) as running, waiters(running, 2):
        with running.client() as client:
            done = client.post("/v1/queues/orders/receive", json={"wait": 20})
            assert (done.status_code, done.json()["error"]["code"]) == (503, "too_many_waiting")
            assert int(done.headers["Retry-After"]) > 0
            assert client.post("/v1/queues/orders/receive", json={}).json() == {"messages": []}
        running.stop()
