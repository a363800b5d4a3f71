"""Without tokens the service answers under this machine's own names only."""

from pathlib import Path

import httpx
import pytest
from service.tests.running import Running, service

from spanmq_service.http.request_origin import is_named_here

FOREIGN = (
    *("evil.example", "evil.example:8080", "192.0.2.7", "localhost.evil.example"),
    *("127.0.0.1.evil.example", "["),
)


@pytest.mark.parametrize("host", FOREIGN)
def test_foreign_name_is_refused(http: httpx.Client, queue: str, host: str) -> None:
    for method, path, given in (
        ("POST", f"/v1/queues/{queue}/messages", {"body": 1}),
        ("POST", f"/v1/queues/{queue}/receive", {}),
        ("GET", "/v1/queues", None),
        ("GET", "/metrics", None),
    ):
        refused = http.request(method, path, json=given, headers={"Host": host})
        assert (refused.status_code, refused.json()["error"]["code"]) == (421, "not_by_this_name"), path
    sqs = {"Host": host, "X-Amz-Target": "AmazonSQS.ListQueues"}
    assert http.post("/", content=b"{}", headers=sqs).status_code == 421
    # Who supervises it may ask by any name, and learns nothing.
    assert http.get("/health/live", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/queues", "/"])
@pytest.mark.parametrize(("host", "status"), [(None, 200), ("localhost", 200), ("evil.example", 421)])
def test_api_and_pages_have_one_rule(shared: Running, path: str, host: str | None, status: int) -> None:
    named = "" if host is None else f"Host: {host}\r\n"
    with shared.dial() as connection:
        # In HTTP 1.0 a request need not say whom it is for; no browser speaks that.
        connection.sendall(f"GET {path} HTTP/1.0\r\n{named}\r\n".encode())
        assert connection.recv(12).endswith(f" {status}".encode())


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:8080", "127.8.9.1"])
def test_own_names_are_answered(http: httpx.Client, host: str) -> None:
    assert is_named_here(host)
    assert http.get("/v1/queues", headers={"Host": host}).status_code == 200


def test_with_tokens_any_name_will_do(orders: str, tmp_path: Path) -> None:
    with service(orders, tmp_path, tokens=True) as running, running.client() as http:
        assert http.get("/v1/queues", headers={"Host": "queues.example"}).status_code == 401
