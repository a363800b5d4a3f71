"""Without tokens the service answers programs and its own pages, under this machine's own names only."""

from pathlib import Path

import httpx
import pytest
from service.tests.running import Running, service, token
from tests.cli.program import ask, do

from spanmq_service.http.request_origin import is_named_here

FOREIGN_NAMES = (
    *("evil.example", "evil.example:8080", "192.0.2.7", "localhost.evil.example"),
    *("127.0.0.1.evil.example", "["),
)
# What a browser says of a request that another site's page had it make.
FOREIGN_PAGES = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize("host", FOREIGN_NAMES)
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


@pytest.mark.parametrize("said", FOREIGN_PAGES, ids=str)
def test_foreign_page_changes_nothing(
    http: httpx.Client, service_database: str, queue: str, said: dict[str, str]
) -> None:
    do(service_database, f"select pgmq.send('{queue}', '1')")
    # None of these needs a look ahead (CORS): a page may have them sent without being asked.
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    purge = f"Action=PurgeQueue&QueueUrl=/000000000000/{queue}"
    for path, content, headers in (
        (f"/v1/queues/{queue}/purge", None, {}),
        (f"/v1/queues/{queue}/pause", None, {}),
        ("/", purge, form),
    ):
        refused = http.post(path, content=content, headers={**headers, **said})
        assert refused.status_code == 403, path
    assert ask(service_database, f"select count(*) from pgmq.q_{queue}") == 1
    paused = f"select is_paused from spanmq.latest_statistics() where queue = '{queue}'"
    assert ask(service_database, paused) is False


def test_own_pages_and_programs_are_answered(http: httpx.Client) -> None:
    here = str(http.base_url).rstrip("/")
    for said in ({}, {"Origin": here}, {"Origin": here, "Sec-Fetch-Site": "same-origin"}):
        assert http.get("/v1/queues", headers=said).status_code == 200


def test_with_a_token_name_and_page_do_not_matter(orders: str, tmp_path: Path) -> None:
    secret = token(orders, "anybody")
    with service(orders, tmp_path, tokens=True) as running, running.client(secret) as client:
        for said in (FOREIGN_PAGES[0], {"Host": "queues.example"}):
            assert client.get("/v1/queues", headers=said).status_code == 200
