"""The service behind nginx with the configuration of deploy/: slow clients are the proxy's, the addresses are right."""

import json
import select
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx
import pytest
from service.tests.running import Running, service, token
from service.tests.sqs.conftest import client_of
from tests.cli.program import do, wait_until
from tests.process.proxy import proxy

from spanmq.client import Client

FORM = "POST /sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
# One slow client would be enough to fill these.
BUDGET = ("--requests-max", 4, "--anonymous-max", 1, "--trusted-proxies", "127.0.0.1")
SLOW = 12
SIZE = 3_000_000


@dataclass(frozen=True)
class Proxied:
    """A service, the same behind nginx, and the secret of a token for both."""

    direct: Running
    proxied: Running
    secret: str

    def measure(self, name: str) -> float:
        """Return a gauge of the service, which it is asked for without the proxy."""
        with self.direct.client(self.secret) as client:
            lines = client.get("/metrics").text.splitlines()
        [line] = [line for line in lines if line.startswith(f"{name} ")]
        return float(line.split()[1])


@pytest.fixture(scope="module")
def behind(service_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxy")
    with (
        service(service_database, folder, *BUDGET, tokens=True) as direct,
        proxy(folder, urlsplit(direct.address).netloc) as address,
    ):
        yield Proxied(direct, replace(direct, address=address), token(service_database, "behind-a-proxy"))


def test_slow_bodies_take_no_place_in_the_service(behind: Proxied) -> None:
    with ExitStack() as stack:
        slow = [stack.enter_context(behind.proxied.dial()) for _ in range(SLOW)]
        for connection in slow:
            connection.sendall(f"{FORM}Content-Length: 1000\r\n\r\n".encode())
        with behind.proxied.client(checked=False) as visitor:
            assert visitor.post("/sign-in", data={"token": "spanmq_wrong"}).status_code == 403
        # Only the request for the metrics itself.
        assert behind.measure("spanmq_requests_at_work") == 1.0
        # None was answered or closed.
        assert select.select(slow, [], [], 0)[0] == []


def test_answer_that_is_not_read_takes_no_place_in_the_service(
    behind: Proxied, queue: str, service_database: str
) -> None:
    do(service_database, f"select pgmq.send('{queue}', to_jsonb(repeat('x', {SIZE})))")
    with ExitStack() as stack:
        for _ in range(SLOW):
            slow = stack.enter_context(behind.proxied.dial())
            slow.sendall(
                f"GET /v1/queues/{queue}/messages HTTP/1.1\r\nHost: x\r\n"
                f"Authorization: Bearer {behind.secret}\r\n\r\n".encode()
            )
            assert slow.recv(1) == b"H"
        wait_until(lambda: behind.measure("spanmq_requests_at_work") == 1.0)


def test_receiver_that_hangs_up_waits_no_longer(behind: Proxied, queue: str) -> None:
    body = json.dumps({"wait": 20}).encode()
    with behind.proxied.dial() as receiver:
        receiver.sendall(
            f"POST /v1/queues/{queue}/receive HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {behind.secret}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        wait_until(lambda: behind.measure("spanmq_requests_waiting") == 1.0)
    wait_until(lambda: behind.measure("spanmq_requests_waiting") == 0.0)


def test_signatures_of_sqs_are_valid_through_the_proxy(behind: Proxied, service_database: str) -> None:
    with Client(service_database) as client:
        key = client.admin.keys.create(verbs=["send", "receive", "look", "manage"])
    credentials = {"access_key_id": key.access_key_id, "secret_access_key": str(key.secret)}
    sqs = client_of(behind.proxied.address, credentials)
    url = sqs.create_queue(QueueName="proxied.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    assert url.startswith(behind.proxied.address)
    sqs.send_message(QueueUrl=url, MessageBody="<&>", MessageGroupId="g", MessageDeduplicationId="1")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "<&>"
    sqs.delete_queue(QueueUrl=url)


def test_client_cannot_choose_its_address(behind: Proxied) -> None:
    """Wrong secrets count by address: twenty are allowed, whatever X-Forwarded-For says."""
    statuses = []
    with behind.proxied.client(checked=False) as client:
        for number in range(25):
            headers = {
                "Authorization": f"Bearer spanmq_wrong{number}",
                "X-Forwarded-For": f"192.0.2.{number}",
            }
            statuses.append(client.get("/v1/queues", headers=headers).status_code)
        assert set(statuses) == {401, 429}
        # What is too large is refused by nginx, in the shape of the service's errors.
        large = client.post("/sign-in", content=iter([b"x" * (17 * 1024 * 1024)]))
    assert isinstance(large, httpx.Response)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
