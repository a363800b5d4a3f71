"""Searches with costly regular expressions end soon, and leave the pool to others."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from service.tests.running import patient, service
from service.tests.test_overload import STUCK, answers, stuck
from tests.cli.program import ask, wait_until
from tests.patience import WAIT_SECONDS

SEARCH = "/v1/queues/orders/dead-letters/search"


def test_searches_that_last_end_after_a_second_and_leave_others_their_turn(
    orders: str, tmp_path: Path
) -> None:
    with (
        # One connection for searches, one for maintain(), and one for others.
        service(patient(orders), tmp_path, "--pool-size", 3, "--pool-timeout", 0.5, tokens=True) as running,
        running.clients(orders, "curious", "innocent", "third") as [searching, client, other],
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(4) as threads,
    ):
        for path in ("/v1/queues", "/health/ready"):
            wait_until(answers(client, path, 200))
        with stuck(orders, searching, client, other):
            pass  # now the pool has all its connections
        # A search that takes as long as this is held.
        blocker.execute("lock table spanmq_core.dead_letter in access exclusive mode")
        asked = [threads.submit(searching.post, SEARCH, json={"error": "x"}) for _ in range(4)]
        wait_until(lambda: ask(orders, STUCK.format(1)))
        assert client.get("/v1/queues").status_code == 200
        assert client.get("/health/ready").status_code == 200
        for each in asked:
            done = each.result(WAIT_SECONDS)
            assert done.json()["error"]["code"] == "invalid_pattern"
            assert "longer than 1 second" in done.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "more"),
    [
        ("POST", "queues/{}/dead-letters/search", {}),
        ("POST", "queues/{}/dead-letters/redrive", {}),
        ("POST", "queues/{}/dead-letters/purge", {"dry_run": True}),
        ("PUT", "queues/{}/category-rules/costly", {"category": "BUSINESS"}),
        ("PUT", "category-rules/costly", {"category": "BUSINESS"}),
    ],
)
def test_pattern_that_would_take_too_much_is_an_error_of_the_pattern(
    http: httpx.Client, queue: str, method: str, path: str, more: dict[str, object]
) -> None:
    url = f"/v1/{path.format(queue)}"
    for pattern in ("(?:a{1,200}){1,200}b", "(?:.?.?.?.?.?){1,120}!!7", "["):
        done = http.request(method, url, json={"error": pattern, **more})
        assert done.json()["error"]["code"] == "invalid_pattern"
    assert http.request(method, url, json={"error": "x{2}", **more}).status_code == 200
