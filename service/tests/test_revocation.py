"""Who may not ask is told so before his body is read, and as soon as his token has ended."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from service.tests.running import Running, patient, service, token
from service.tests.sqs.conftest import client_of
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

from spanmq.client import AsyncClient, Client
from spanmq_service.guard.access_changes import heed_access

# Longer than a test may take: what is remembered ends by being forgotten only.
LONG = ("--token-cache", 3600)
RECEIVE = "/v1/queues/orders/receive"


@pytest.fixture
def guarded(orders: str, tmp_path: Path) -> Iterator[Running]:
    with service(orders, tmp_path, *LONG, tokens=True) as started:
        yield started


def listeners(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where query = 'listen \"spanmq.access\"'"
            " and datname = current_database()"
        ).fetchone()
    return 0 if row is None else int(row[0])


@pytest.mark.parametrize(("kind", "status"), [("token", 403), ("none", 401), ("key", 403)])
def test_body_of_who_may_not_send_is_not_awaited(
    guarded: Running, orders: str, kind: str, status: int
) -> None:
    if kind == "key":
        head = "POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.ListQueues"
    else:
        secret = token(orders, "looks", verbs="look") if kind == "token" else "spanmq_none"
        path = "/v1/queues/orders/messages"
        head = f"POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {secret}"
    with guarded.dial() as connection:
        connection.sendall(f"{head}\r\nHost: x\r\nContent-Length: 1000\r\n\r\n".encode())
        # Not a byte of the body was sent.
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(f"HTTP/1.1 {status}".encode()), answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("how", ["revoke", "rotate"])
def test_token_that_ended_is_refused_at_once(guarded: Running, orders: str, how: str) -> None:
    secret = token(orders, "brief", verbs="look")
    wait_until(lambda: listeners(orders) == 1)
    with guarded.client(secret) as client, Client(orders) as keeper:
        assert client.get("/v1/queues").status_code == 200
        if how == "revoke":
            keeper.admin.tokens.revoke("brief")
        else:
            keeper.admin.tokens.rotate("brief")
        # Remembered for an hour, but for the notification.
        wait_until(lambda: client.get("/v1/queues").status_code == 401)


def test_key_that_ended_is_refused_at_once(guarded: Running, orders: str) -> None:
    with Client(orders) as keeper:
        made = keeper.admin.keys.create(verbs=["look"])
        sqs = client_of(guarded.address, made)
        wait_until(lambda: listeners(orders) == 1)
        sqs.list_queues()
        keeper.admin.keys.revoke(made.access_key_id)

        def is_refused() -> bool:
            try:
                sqs.list_queues()
            except sqs.exceptions.ClientError as error:
                return bool(error.response["Error"]["Code"] == "InvalidClientTokenId")
            return False

        wait_until(is_refused)


def test_what_ended_unheard_is_refused_when_the_service_listens_again(guarded: Running, orders: str) -> None:
    names = ("brief", "short")
    secrets = [token(orders, name, verbs="look") for name in names]
    wait_until(lambda: listeners(orders) == 1)
    with (
        guarded.client(secrets[0]) as brief,
        guarded.client(secrets[1]) as short,
        psycopg.connect(orders, autocommit=True) as keeper,
    ):
        found = []
        for client, name in zip((brief, short), names, strict=True):
            assert client.get("/v1/queues").status_code == 200
            keeper.execute("delete from spanmq_core.token where name = %s", [name])  # told to nobody
            found.append(client.get("/v1/queues").status_code)
        # It forgets what it knew when it begins to listen, which may have been between two of these looks.
        assert 200 in found
        keeper.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen \"spanmq.access\"'"
            " and datname = current_database()"
        )
        wait_until(lambda: {each.get("/v1/queues").status_code for each in (brief, short)} == {401})


@contextmanager
def polled(dsn: str, folder: Path) -> Iterator[tuple[Running, httpx.Client, Future[httpx.Response]]]:
    """Run a service, with the client of the token `mine`, who waits for a message, and his poll."""
    watcher, secret = token(dsn, "watcher"), token(dsn, "mine", verbs="receive")
    with (
        service(dsn, folder, *LONG, "--wait-max", 3600, tokens=True) as running,
        running.client(secret) as mine,
        running.client(watcher) as watching,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_until(lambda: listeners(dsn) == 1)
        poll = pool.submit(mine.post, RECEIVE, json={"wait": 3600})
        wait_until(lambda: "spanmq_requests_waiting 1.0" in watching.get("/metrics").text)
        yield running, mine, poll


def test_who_waits_when_his_token_ends_gets_nothing_more(orders: str, tmp_path: Path) -> None:
    with Client(orders) as client, polled(orders, tmp_path) as (_, mine, poll):
        client.admin.tokens.revoke("mine")
        assert poll.result().json() == {"messages": []}
        client.send("orders", 1)
        assert mine.post(RECEIVE, json={}).status_code == 401
        assert client.queues.metrics("orders").visible_length == 1


@pytest.mark.parametrize("protocol", ["http", "sqs"])
def test_request_whose_token_ends_while_it_waits_gets_no_message(
    orders: str, tmp_path: Path, protocol: str
) -> None:
    secret, watcher, looker = (token(orders, name) for name in ("mine", "watcher", "looker"))
    with (
        Client(orders) as client,
        service(patient(orders), tmp_path, *LONG, "--wait-max", 3600, tokens=True) as running,
        running.client(secret) as mine,
        running.client(watcher) as watching,
        running.client(looker) as other,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_until(lambda: listeners(orders) == 1)
        # Its token was checked, and it does not wait yet: its first look for a message takes long.
        blocker.execute("lock table spanmq_core.state in access exclusive mode")
        if protocol == "http":
            poll = pool.submit(mine.post, RECEIVE, json={"wait": 3600})
        else:
            made = client.admin.keys.create(verbs=["receive"])
            sqs = client_of(running.address, made)
            url = f"{running.address}/000000000000/orders"
            poll = pool.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        # Not maintenance, which waits for the same lock.
        stuck = "select count(*) = 1 from pg_stat_activity where datname = current_database()"
        wait_until(lambda: ask(orders, f"{stuck} and wait_event_type = 'Lock' and query ~ 'spanmq.receive'"))
        # Known later than the other: who forgets it forgets both.
        assert watching.get("/v1/queues").status_code == 200
        client.admin.tokens.revoke("mine")
        if protocol == "sqs":
            client.admin.keys.revoke(made.access_key_id)
        client.admin.tokens.revoke("watcher")
        # The service has heard of it.
        wait_until(lambda: watching.get("/v1/queues").status_code == 401)
        blocker.rollback()
        wait_until(lambda: poll.done() or "spanmq_requests_waiting 1.0" in other.get("/metrics").text)
        client.send("orders", 1)
        done: Any = poll.result()
        assert "Messages" not in done if protocol == "sqs" else done.json() == {"messages": []}
        assert client.queues.metrics("orders").visible_length == 1


def test_token_is_not_remembered_for_longer_than_it_is_valid(guarded: Running, orders: str) -> None:
    with Client(orders) as keeper:
        secret = keeper.admin.tokens.create(
            "brief", queues=["*"], verbs=["look"], expires=timedelta(seconds=1)
        )
    with guarded.client(secret) as client:
        # Remembered for an hour, but for its end.
        wait_until(lambda: client.get("/v1/queues").status_code == 401)


def test_notifications_by_any_role_end_no_poll(orders: str, tmp_path: Path) -> None:
    gone = token(orders, "gone")
    with (
        Client(orders) as client,
        polled(orders, tmp_path) as (running, _, poll),
        running.client(gone) as noticing,
    ):
        assert noticing.get("/v1/queues").status_code == 200
        do(orders, "delete from spanmq_core.token where name = 'gone'")  # reported to nobody
        do(orders, 'notify "spanmq.access"')
        # The service has heard of it.
        wait_until(lambda: noticing.get("/v1/queues").status_code == 401)
        assert not poll.done()
        client.send("orders", 1)
        assert len(poll.result().json()["messages"]) == 1


def test_many_notifications_are_reported_together(database: str) -> None:
    async def scene() -> int:
        count, changed = 0, asyncio.Event()

        def hear() -> None:
            nonlocal count
            count += 1
            changed.set()

        async def hear_one() -> None:
            await asyncio.wait_for(changed.wait(), WAIT_SECONDS)
            changed.clear()

        async with AsyncClient(database) as client:
            heeding = asyncio.create_task(heed_access(client, hear))
            await hear_one()  # listening begins
            await asyncio.to_thread(
                do, database, "select pg_notify('spanmq.access', n::text) from generate_series(1, 50) n"
            )
            await hear_one()
            await asyncio.to_thread(do, database, """notify "spanmq.access", 'anything'""")
            await hear_one()
            heeding.cancel()
            await asyncio.wait([heeding])
        return count

    # Listening, the fifty (in one piece or two), the last.
    assert asyncio.run(scene()) <= 4
