"""Without tokens, a page of another site can do nothing through the browser of somebody on this machine."""

from pathlib import Path

import httpx
import pytest
from service.tests.running import service, token
from tests.cli.program import ask, do

# What a browser says of a request that another site's page had it make.
FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Origin": "http://localhost:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@pytest.mark.parametrize("said", FOREIGN, ids=str)
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


def test_with_a_token_it_does_not_matter_who_asks(orders: str, tmp_path: Path) -> None:
    secret = token(orders, "anybody")
    with service(orders, tmp_path, tokens=True) as running, running.client(secret) as client:
        assert client.get("/v1/queues", headers=FOREIGN[0]).status_code == 200
