"""Requests without a valid token take nothing from those that have one, however slow or many they are."""

import asyncio
import re
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from service.tests.running import Running, service, token
from service.tests.sqs.conftest import client_of
from starlette.types import Message, Receive, Scope, Send
from tests.cli.program import wait_until
from tests.patience import WAIT_SECONDS

from spanmq.client import Client
from spanmq_service.guard import credentials
from spanmq_service.guard.gate import Gate
from spanmq_service.http.request_origin import address_of
from spanmq_service.settings import Settings

FORM = "POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
BUDGET = ("--requests-max", 4, "--anonymous-max", 4, "--trusted-proxies", "127.0.0.1")


@pytest.fixture(scope="module")
def guarded(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with small budgets, which no test may leave full."""
    folder = tmp_path_factory.mktemp("anonymous")
    with service(service_database, folder, *BUDGET, tokens=True) as started:
        yield started


@pytest.fixture(scope="module")
def secret(service_database: str) -> str:
    return token(service_database, "innocent", verbs="look")


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Wait until what a test has hung up on is noticed."""
    if "guarded" not in request.fixturenames:
        yield
        return
    running, secret = request.getfixturevalue("guarded"), request.getfixturevalue("secret")
    yield
    with running.client(secret) as client:
        wait_until(lambda: "\nspanmq_requests_at_work 1.0" in client.get("/metrics").text)


def statuses(connections: list[socket.socket], count: int) -> list[bytes]:
    """Return the status lines of so many answers, in the order in which they come."""
    left = list(connections)
    lines: list[bytes] = []
    while len(lines) < count:
        ready, _, _ = select.select(left, [], [], WAIT_SECONDS)
        assert ready, f"{len(lines)} of {count} were answered"
        for connection in ready:
            lines.append(connection.recv(65_536).split(b"\r\n")[0])
            left.remove(connection)
    return lines


def send_slowly(stack: ExitStack, running: Running, heads: list[str], refused: int) -> list[socket.socket]:
    """Send the head of each request and nothing of its body; wait until so many are refused: the budget is full."""
    connections = [stack.enter_context(running.dial()) for _ in heads]
    for connection, head in zip(connections, heads, strict=True):
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())
    assert all(b" 503 " in line for line in statuses(connections, refused))
    return connections


def amazon(access_key_id: str) -> str:
    now = datetime.now(UTC)
    credential = f"{access_key_id}/{now:%Y%m%d}/us-east-1/sqs/aws4_request"
    return (
        f"POST / HTTP/1.1\r\nHost: x\r\nX-Amz-Date: {now:%Y%m%dT%H%M%SZ}\r\n"
        f"X-Amz-Target: AmazonSQS.ListQueues\r\nAuthorization: AWS4-HMAC-SHA256 Credential={credential}, "
        f"SignedHeaders=host;x-amz-date;x-amz-target, Signature={'0' * 64}\r\n"
    )


@pytest.mark.parametrize(
    "header", ["", "Authorization: Bearer spanmq_wrong\r\n", "Cookie: spanmq_session=x\r\n"]
)
def test_slow_sign_ins_leave_token_holders_their_turn(guarded: Running, secret: str, header: str) -> None:
    with ExitStack() as stack, guarded.client(secret) as innocent:
        send_slowly(stack, guarded, [FORM + header] * 6, 2)
        assert innocent.get("/v1/queues").status_code == 200


def test_address_with_slow_sign_ins_leaves_others_their_own(guarded: Running) -> None:
    with ExitStack() as stack, guarded.client() as other:
        last = stack.enter_context(guarded.dial())
        send_slowly(stack, guarded, [f"{FORM}X-Forwarded-For: 192.0.2.1\r\n"] * 6, 2)
        last.sendall(f"{FORM}X-Forwarded-For: 192.0.2.2\r\nContent-Length: 2\r\n\r\n".encode())
        form = {"token": "spanmq_wrong"}
        for address in ("192.0.2.1", "192.0.2.3"):
            # Not of our page: that is said of it, when it was read.
            forged = other.post("/sign-in", data=form, headers={"X-Forwarded-For": address})
            assert forged.status_code == 403
        # What others did ended nothing of this address.
        last.sendall(b"a=")
        assert b" 403 " in statuses([last], 1)[0]


def test_slow_bodies_under_an_access_key_leave_others_their_turn(
    guarded: Running, secret: str, service_database: str
) -> None:
    with Client(service_database) as client:
        known, other = (client.admin.keys.create(verbs=["look"]) for _ in range(2))
    with ExitStack() as stack, guarded.client(secret) as innocent:
        # Four wait for their bodies: as many as the budget holds.
        send_slowly(stack, guarded, [amazon(known.access_key_id)] * 6, 2)
        # Until their key has been looked up, they count as arriving.
        wait_until(lambda: innocent.get("/v1/queues").status_code == 200)
        for each in (known, other):
            client_of(guarded.address, each).list_queues()
        with guarded.client() as visitor:
            assert visitor.post("/sign-in", data={"token": "spanmq_wrong"}).status_code == 403


def test_slow_bodies_without_credentials_leave_sqs_its_turn(guarded: Running, service_database: str) -> None:
    with Client(service_database) as client:
        known = client.admin.keys.create(verbs=["look"])
    with ExitStack() as stack:
        heads = [f"{FORM}X-Forwarded-For: 192.0.2.{number % 2}\r\n" for number in range(12)]
        send_slowly(stack, guarded, heads, 8)
        client_of(guarded.address, known).list_queues()


def test_trailer_does_not_authenticate(guarded: Running, secret: str) -> None:
    head = "POST /v1/queues/none/receive HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    trailer = f"2\r\n{{}}\r\n0\r\nAuthorization: Bearer {secret}\r\n\r\n"
    with guarded.dial() as connection:
        connection.sendall(
            f"{head}Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n{trailer}".encode()
        )
        assert b" 401 " in statuses([connection], 1)[0]


def test_address_of_a_proxy_counts_only_if_it_is_trusted(orders: str, tmp_path: Path) -> None:
    with service(orders, tmp_path, tokens=True) as running, running.client() as client:
        answers = [
            client.get(
                "/v1/queues",
                headers={"Authorization": f"Bearer spanmq_{n}", "X-Forwarded-For": f"192.0.2.{n}"},
            ).status_code
            for n in range(60)
        ]
    assert 429 in answers


def test_large_bodies_under_an_access_key_leave_others_room(service_database: str, tmp_path: Path) -> None:
    with Client(service_database) as client:
        known = client.admin.keys.create(verbs=["look"])
    size = 4 * 1024 * 1024
    with service(service_database, tmp_path, tokens=True) as running, ExitStack() as stack:
        slow = [stack.enter_context(running.dial()) for _ in range(20)]
        for connection in slow:
            connection.sendall(f"{amazon(known.access_key_id)}Content-Length: {size}\r\n\r\n".encode())
            connection.sendall(b"x" * (size - 1))
        assert all(b" 503 " in line for line in statuses(slow, 4))
        client_of(running.address, known).list_queues()


def test_large_body_without_a_token_is_refused_unread(guarded: Running, service_database: str) -> None:
    with Client(service_database) as client:
        key = client.admin.keys.create(verbs=["look"])
    for head, size in ((FORM, 10_000), (amazon(key.access_key_id), 5 * 1024 * 1024)):
        with guarded.dial() as connection:
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
            [line] = statuses([connection], 1)
            assert b" 413 " in line, head


def test_large_body_without_a_length_is_refused_when_it_is_too_large(guarded: Running) -> None:
    with guarded.client() as client:
        done = client.post(
            "/sign-in",
            content=iter([b"x" * 5_000] * 3),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
    assert done.status_code == 413


def test_wrong_secrets_are_refused_unseen_and_a_right_one_is_not(
    guarded: Running, secret: str, service_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None is forgiven within the test.
    monkeypatch.setattr(credentials, "FORGOTTEN_PER_SECOND", 1e-4)
    new = token(service_database, "new", verbs="look")
    here = {"X-Forwarded-For": "192.0.2.10"}

    def ask(shown: str, headers: dict[str, str] = here) -> int:
        given = {"Authorization": f"Bearer {shown}", **headers}
        return client.get("/v1/queues", headers=given).status_code

    with guarded.client() as client:
        assert ask(secret) == 200
        # One wrong secret, however often, is one.
        assert {ask("spanmq_old") for _ in range(40)} == {401}
        tried = 0
        while ask(f"spanmq_{tried}") == 401:
            tried += 1
            assert tried < 1000
        assert tried >= 10
        # The same count for people.
        page = client.get("/sign-in", headers=here)
        form = {"token": "spanmq_guess", "form_token": re.findall(r'form_token" value="(\w+)"', page.text)[0]}
        assert client.post("/sign-in", data=form, headers=here).status_code == 429
        # A secret that was right here lately is never refused; a new one, from elsewhere, is not either.
        assert ask(secret) == 200
        assert ask(new) == 429
        assert ask(new, {"X-Forwarded-For": "192.0.2.11"}) == 200
        assert ask(new) == 200


def passing(gate: Gate, app: Any) -> tuple[asyncio.Event, asyncio.Task[None], list[Message]]:
    """Begin a request whose client does not take the answer before the event."""
    taken, sent = asyncio.Event(), list[Message]()

    async def send(message: Message) -> None:
        sent.append(message)
        await taken.wait()

    async def receive() -> Message:
        return {"type": "http.request"}

    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/docs",
        "scheme": "http",
        "headers": [],
    }
    scope["client"] = ("192.0.2.1", 1)
    return taken, asyncio.ensure_future(gate.over(app)(scope, receive, send)), sent


def test_answers_that_are_not_taken_count_as_anonymous() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"large"})

    async def scene() -> list[int]:
        gate = Gate(Settings(dsn="postgresql:///none", requests_max=2, anonymous_max=2))
        begun = [passing(gate, app) for _ in range(3)]
        await asyncio.sleep(0)
        assert gate.at_work == 3
        for taken, task, _ in begun:
            taken.set()
            await task
        assert gate.at_work == 0
        return [sent[0]["status"] for _, _, sent in begun]

    assert asyncio.run(scene()) == [200, 503, 503]


def test_requests_without_tokens_have_the_whole_service(http: httpx.Client) -> None:
    assert http.put("/v1/queues/whole", json={}).status_code == 200
    assert http.post("/v1/queues/whole/messages", json={"body": "x" * 100_000}).status_code == 201


@pytest.mark.parametrize(
    ("host", "other", "is_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_limits_by_address_are_by_network_for_ipv6(host: str, other: str, is_one: bool) -> None:
    """A client of IPv6 chooses among the addresses of its /64 network."""
    first, second = (address_of({"client": (each, 1234)}) for each in (host, other))
    assert (first == second) is is_one
