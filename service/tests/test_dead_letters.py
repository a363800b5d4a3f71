"""Dead letters over HTTP: chosen by a path, previewed and redriven with a patch, within limits."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from service.tests.running import patient, service, token
from tests.cli.program import ask, do
from tests.patience import WAIT_SECONDS

PATCH = [{"op": "move", "from": "/custmer", "path": "/customer"}]


def kill(dsn: str, queue: str, n: int) -> None:
    do(
        dsn,
        f"select pgmq.send('{queue}', jsonb_build_object('custmer', i)) from generate_series(1, {n}) i",
        f"select spanmq.reject('{queue}', lease_id, array_agg(msg_id)) from spanmq.receive('{queue}', {n})"
        " group by lease_id",
    )


@pytest.mark.parametrize("given", [{"where": 1}, {"patch": []}, {"patch": [1]}, {"dead_letter_ids": ["1"]}])
def test_what_is_no_path_or_patch_is_refused(
    http: httpx.Client, queue: str, service_database: str, given: dict[str, Any]
) -> None:
    kill(service_database, queue, 1)
    done = http.post(f"/v1/queues/{queue}/dead-letters/redrive", json=given)
    assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_argument")
    assert ask(service_database, f"select count(*) from spanmq.dead_letters('{queue}')") == 1


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


@pytest.mark.parametrize("act", ["search", "redrive", "purge"])
def test_path_that_takes_long_ends_after_a_second(orders: str, tmp_path: Path, act: str) -> None:
    with (
        service(patient(orders), tmp_path) as running,
        running.client() as http,
        psycopg.connect(orders) as blocker,
        ThreadPoolExecutor(1) as threads,
    ):
        # A search that takes as long as this is held.
        blocker.execute("lock table spanmq_core.dead_letter in access exclusive mode")
        asked = threads.submit(http.post, f"/v1/queues/orders/dead-letters/{act}", json={"where": "$"})
        done = asked.result(WAIT_SECONDS).json()
        assert done["error"]["code"] == "invalid_pattern"
        assert "longer than 1 second" in done["error"]["message"]
