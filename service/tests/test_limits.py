"""Requests that are too large, too slow or no requests: answered or cut off, and nobody else suffers."""

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
from service.tests.running import Running, service
from tests.cli.program import do
from tests.patience import WAIT_SECONDS

HEAD = "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def strict(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that takes short bodies only."""
    do(service_database, "select pgmq.create('orders')")
    with service(service_database, tmp_path_factory.mktemp("strict"), "--body-bytes-max", 10_000) as started:
        yield started


@pytest.fixture(scope="module")
def hasty(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with little patience: in no other test of it may the client be slow."""
    with service(service_database, tmp_path_factory.mktemp("hasty"), "--read-timeout", 0.5) as started:
        yield started


def rest(connection: socket.socket) -> bytes:
    """Read until the service hangs up."""
    pieces = []
    try:
        while piece := connection.recv(1 << 16):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


@pytest.mark.parametrize("chunked", [False, True])
def test_body_over_the_limit_is_refused(strict: Running, chunked: bool) -> None:
    body = b'{"body": "' + b"x" * 20_000 + b'"}'
    given = iter([body[:5_000], body[5_000:]]) if chunked else body
    with strict.client() as client:
        done = client.post("/v1/queues/orders/messages", content=given, headers=JSON)
        assert (done.status_code, done.json()["error"]["code"]) == (413, "request_too_large")
        small = client.post("/v1/queues/orders/messages", content=b'{"body": "x"}', headers=JSON)
        assert small.status_code == 201


def test_body_that_is_announced_too_large_is_refused_unread(strict: Running) -> None:
    with strict.dial() as connection:
        connection.sendall(f"{HEAD}Content-Length: 999999999\r\n\r\n".encode())
        assert rest(connection).startswith(b"HTTP/1.1 413 ")


def test_body_that_comes_too_slowly_is_cut_off(hasty: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasty.server is not None
    # Of its headers nothing is asked here, however late they come on a busy machine.
    monkeypatch.setattr(hasty.server.config.http_protocol_class, "header_seconds", WAIT_SECONDS)
    with hasty.dial() as connection:
        connection.sendall(f'{HEAD}Content-Length: 100\r\nConnection: close\r\n\r\n{{"b'.encode())
        assert b" 408 " in rest(connection).split(b"\r\n")[0]


@pytest.mark.parametrize("said", [b"", b"POST /v1/queues/orders/messages HTTP/1.1\r\nHost: x\r\nX-A: "])
def test_headers_that_do_not_come_are_not_waited_for(hasty: Running, said: bytes) -> None:
    with hasty.dial() as connection:
        with suppress(OSError):  # too late for these
            connection.sendall(said)
        assert rest(connection) == b""


def test_headers_that_come_byte_by_byte_gain_no_time(hasty: Running) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    with hasty.dial() as connection, suppress(OSError):  # cut off while we were sending
        connection.sendall(b"GET /health/live HTTP/1.1\r\nX-Slow: ")
        connection.setblocking(False)
        while time.monotonic() < deadline:
            connection.sendall(b"x")
            if select.select([connection], [], [], 0.05)[0] and connection.recv(1) == b"":
                return
        pytest.fail("slow headers are read for ever")


def test_headers_without_end_are_cut_off(strict: Running) -> None:
    with strict.dial() as connection:
        with suppress(OSError):
            connection.sendall(b"GET /health/live HTTP/1.1\r\n" + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n")
        assert not rest(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "queue",
    ["a%0Aservice_started%20address=x", "a%00b", "a%27%3B--", "%24%24", "x" * 60, "%F0%9F%98%80" * 20],
)
def test_bad_name_of_a_queue_is_refused_and_forges_no_log(strict: Running, queue: str) -> None:
    with strict.client() as client:
        done: httpx.Response = client.put(f"/v1/queues/{queue}", json={})
    assert done.status_code in (200, 400, 422), done.text
    assert "\nservice_started" not in strict.log.read_text()


def test_what_is_no_http_has_the_one_shape(strict: Running) -> None:
    with strict.dial() as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error"]["code"] == "invalid_request"


def test_unknown_path_and_method_have_the_one_shape(strict: Running) -> None:
    with strict.client() as client:
        assert client.get("/v1/none").json()["error"]["code"] == "not_found"
        assert client.put("/v1/ack").json()["error"]["code"] == "method_not_allowed"
