"""Idempotency keys: a request that comes again sends nothing again, and is nobody else's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
from tests.cli.program import ask
from tests.service.running import Running, service, token

PATH = "/v1/queues/orders/messages"
COUNT = "select count(*) from pgmq.q_orders"


def sent(http: httpx.Client, key: str) -> int:
    done = http.post(PATH, json={"body": 1}, headers={"Idempotency-Key": key})
    assert done.status_code == 201, done.text
    return int(done.json()["message_id"])


def test_key_is_that_of_its_token(orders: str, tmp_path: Path) -> None:
    secrets = [token(orders, name) for name in ("shop", "bank")]
    with (
        service(orders, tmp_path, tokens=True) as running,
        running.client(secrets[0]) as shop,
        running.client(secrets[1]) as bank,
    ):
        first = sent(shop, "1")
        assert sent(bank, "1") != first
        assert sent(shop, "1") == first
    assert ask(orders, COUNT) == 2


def test_requests_that_come_together_send_once(running: Running, orders: str) -> None:
    with ThreadPoolExecutor(8) as threads, running.client() as http:
        ids = set(threads.map(lambda _: sent(http, "k" * 200), range(24)))
    assert len(ids) == 1
    assert ask(orders, COUNT) == 1
