"""Dead letters over HTTP: chosen by a path or a pattern, redriven with a patch; costly searches end soon."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from service.tests.running import patient, service, token
from service.tests.test_overload import STUCK, answers, stuck
from tests.cli.program import ask, do, wait_until
from tests.patience import WAIT_SECONDS

PATCH = [{"op": "move", "from": "/custmer", "path": "/customer"}]


def kill(dsn: str, queue: str, n: int) -> None:
    do(
        dsn,
        f"select pgmq.send('{queue}', jsonb_build_object('custmer', i)) from generate_series(1, {n}) i",
        f"select spanmq.reject('{queue}', lease_id, array_agg(msg_id)) from spanmq.receive('{queue}', {n})"
        " group by lease_id",
    )


def test_encrypted_body_is_a_conflict(http: httpx.Client, queue: str, service_database: str) -> None:
    do(
        service_database,
        f"""select pgmq.send('{queue}', '{{"spanmq.sealed": {{}}}}')""",
        f"select spanmq.reject('{queue}', lease_id, array[msg_id]) from spanmq.receive('{queue}')",
    )
    given = {"patch": [{"op": "add", "path": "/a", "value": 1}]}
    done = http.post(f"/v1/queues/{queue}/dead-letters/redrive", json=given)
    assert (done.status_code, done.json()["error"]["code"]) == (409, "not_possible")


def test_token_that_may_not_look_learns_nothing_of_bodies(orders: str, tmp_path: Path) -> None:
    kill(orders, "orders", 2)
    manager = token(orders, "manager", verbs="manage")
    with service(orders, tmp_path, tokens=True) as running, running.client(manager) as http:
        for act in ("redrive", "purge"):
            url = f"/v1/queues/orders/dead-letters/{act}"
            for condition in ({"where": "$.custmer"}, {"payload": {"custmer": 1}}, {"error": "o"}):
                for dry_run in (True, False):
                    assert http.post(url, json={**condition, "dry_run": dry_run}).status_code == 403
            assert http.post(url, json={"dry_run": True}).status_code == 200
        url = "/v1/queues/orders/dead-letters/redrive"
        assert http.post(url, json={"patch": PATCH, "dry_run": True}).status_code == 403
        done = http.post(url, json={"patch": PATCH})
        assert [each["before"] for each in done.json()["results"]] == [None, None]


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
        asked = [
            threads.submit(searching.post, f"/v1/queues/orders/dead-letters/{act}", json=condition)
            for act, condition in (
                *(("search", {"error": "x"}), ("search", {"where": "$"})),
                *(("redrive", {"where": "$"}), ("purge", {"where": "$"})),
            )
        ]
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
