"""Searches with costly regular expressions end soon, and leave the pool to others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from tests.cli.program import ask, wait_until
from tests.patience import WAIT_SECONDS
from tests.service.running import patient, service, token
from tests.service.test_overload import STUCK

SEARCH = "/v1/queues/orders/dead-letters/search"


def test_searches_that_last_end_after_a_second_and_leave_others_their_turn(
    orders: str, tmp_path: Path
) -> None:
    curious, innocent = (token(orders, name) for name in ("curious", "innocent"))
    with (
        service(patient(orders), tmp_path, "--pool-size", 2, "--pool-timeout", 0.5, tokens=True) as running,
        running.client(curious) as searching,
        running.client(innocent) as client,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(4) as threads,
    ):
        assert client.get("/v1/queues").status_code == 200
        # A search that takes as long as this is held.
        blocker.execute("lock table spanmq_core.dead_letter, spanmq_core.dead_run in access exclusive mode")
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
        ("POST", SEARCH, {}),
        ("POST", "/v1/queues/orders/dead-letters/redrive", {}),
        ("POST", "/v1/queues/orders/dead-letters/purge", {"dry_run": True}),
        ("PUT", "/v1/queues/orders/category-rules/costly", {"category": "BUSINESS"}),
        ("PUT", "/v1/category-rules/costly", {"category": "BUSINESS"}),
    ],
)
def test_pattern_that_would_take_too_much_is_an_error_of_the_pattern(
    orders: str, tmp_path: Path, method: str, path: str, more: dict[str, object]
) -> None:
    with service(orders, tmp_path) as running, running.client() as client:
        for pattern in ("(?:a{1,200}){1,200}b", "(?:.?.?.?.?.?){1,120}!!7", "["):
            done = client.request(method, path, json={"error": pattern, **more})
            assert done.json()["error"]["code"] == "invalid_pattern"
        assert client.request(method, path, json={"error": "x{2}", **more}).status_code == 200
