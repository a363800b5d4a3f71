"""Idempotency keys: a request that comes again sends nothing again, and is nobody else's."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import pytest
from service.tests.running import Running, service
from tests.cli.program import ask

PATH = "/v1/queues/orders/messages"
COUNT = "select count(*) from pgmq.q_orders"


def sent(http: httpx.Client, key: str) -> int:
    done = http.post(PATH, json={"body": 1}, headers={"Idempotency-Key": key})
    assert done.status_code == 201, done.text
    return int(done.json()["message_id"])


@pytest.fixture
def tenants(orders: str, tmp_path: Path) -> Iterator[list[httpx.Client]]:
    """Clients of two tokens."""
    with service(orders, tmp_path, tokens=True) as running, running.clients(orders, "shop", "bank") as both:
        yield both


def test_key_is_that_of_its_token(orders: str, tenants: list[httpx.Client]) -> None:
    shop, bank = tenants
    first = sent(shop, "1")
    assert sent(bank, "1") != first
    assert sent(shop, "1") == first
    assert ask(orders, COUNT) == 2


def test_key_cannot_be_taken_by_a_sender_that_knows_it(orders: str, tenants: list[httpx.Client]) -> None:
    shop, bank = tenants
    sent(shop, "first")
    taken = ask(orders, "select dedup_id from spanmq_core.deduplication")
    key = taken.replace(sha256(b'["shop", "first"]').hexdigest(), sha256(b'["shop", "1"]').hexdigest())
    assert key != taken
    done = bank.post(PATH, json={"body": 2, "dedup_id": key})
    assert done.status_code == 201, done.text
    assert sent(shop, "1") != int(done.json()["message_id"])
    assert ask(orders, COUNT) == 3


def test_id_stands_for_a_message_until_that_is_settled(http: httpx.Client, queue: str) -> None:
    path = f"/v1/queues/{queue}/messages"
    message = {"body": 1, "dedup_id": "a"}
    given = message | {"dedup_until": "settled"}
    assert http.post(path, json=given).json() == http.post(path, json=given).json() == {"message_id": 1}
    batch = {"messages": [{"body": 2}, message, {"body": 3, "delay": 60}], "dedup_until": "settled"}
    assert http.post(f"{path}/batch", json=batch).json() == {
        "results": [{"message_id": n} for n in (2, 1, 3)]
    }
    refused = http.post(path, json=given | {"on_duplicate": "raise"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "dedup_id_in_use")
    replaced = http.post(f"{path}/batch", json=batch | {"on_duplicate": "replace"}).json()["results"]
    assert replaced == [{"message_id": n} for n in (4, 5, 6)]
    for wrong, headers in (
        ({"body": 1, "dedup_until": "settled"}, {}),
        ({"messages": [{"body": 1}], "dedup_until": "settled"}, {}),
        (given | {"dedup_until": "done"}, {}),
        ({"body": 1, "dedup_until": "settled"}, {"Idempotency-Key": "k"}),
    ):
        end = "/batch" if "messages" in wrong else ""
        assert http.post(path + end, json=wrong, headers=headers).status_code == 422


BATCH = [{"body": {"a": 1, "b": [1.5, "é"]}}, {"body": 2, "delay": 60}]


def post(http: httpx.Client, path: str, given: object, key: str = "k") -> httpx.Response:
    return http.post(f"{PATH}{path}", json=given, headers={"Idempotency-Key": key})


def test_same_request_in_another_layout_is_the_same(running: Running, orders: str) -> None:
    moment = "2030-01-01T00:00:00Z"
    again = [
        {"priority": 0, "body": {"b": [1.5, "é"], "a": 1}},
        {"delay": 60.0, "body": 2},
        {"body": 3, "delay": moment},
    ]
    with running.client() as http:
        first = post(http, "/batch", {"messages": [*BATCH, {"delay": moment, "body": 3}]})
        assert first.status_code == 201, first.text
        assert post(http, "/batch", {"messages": again}).text == first.text
    assert ask(orders, COUNT) == 3


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/batch", {"messages": [*BATCH, {"body": 3}]}),
        ("/batch", {"messages": BATCH[:1]}),
        ("/batch", {"messages": BATCH[::-1]}),
        ("/batch", {"messages": [BATCH[0], {"body": 2}]}),
        ("/batch", {"messages": [{"body": {"a": 1, "b": [1.5, "e"]}}, BATCH[1]]}),
        ("/batch", {"messages": BATCH, "ordered": True}),
        ("", BATCH[0]),
    ],
    ids=["longer", "shorter", "turned", "another option", "another body", "ordered", "single"],
)
def test_same_key_with_another_request_is_refused(
    http: httpx.Client, service_database: str, queue: str, path: str, given: object
) -> None:
    url = f"/v1/queues/{queue}/messages"
    headers = {"Idempotency-Key": "k"}
    first = http.post(f"{url}/batch", json={"messages": BATCH}, headers=headers)
    done = http.post(f"{url}{path}", json=given, headers=headers)
    assert (done.status_code, done.json()["error"]["code"]) == (422, "idempotency_key_reused")
    assert "hint" in done.json()["error"]
    # The key still stands for the first, and another key for another request.
    assert http.post(f"{url}/batch", json={"messages": BATCH}, headers=headers).text == first.text
    assert ask(service_database, f"select count(*) from pgmq.q_{queue}") == 2
    assert http.post(f"{url}{path}", json=given, headers={"Idempotency-Key": "l"}).status_code == 201


def test_of_two_requests_that_come_together_one_is_refused(running: Running, orders: str) -> None:
    with ThreadPoolExecutor(8) as threads, running.client() as http:
        done = list(threads.map(lambda number: post(http, "", {"body": number % 2}), range(16)))
    sent_once = {each.json()["message_id"] for each in done if each.status_code == 201}
    refused = {each.json()["error"]["code"] for each in done if each.status_code != 201}
    assert (len(sent_once), refused) == (1, {"idempotency_key_reused"})
    assert ask(orders, COUNT) == 1


def test_two_keys_are_refused(http: httpx.Client, queue: str) -> None:
    def post(path: str, *keys: str) -> httpx.Response:
        given = {"body": 1} if not path else {"messages": [{"body": 1}]}
        headers = [("Idempotency-Key", key) for key in keys]
        return http.post(f"/v1/queues/{queue}/messages{path}", json=given, headers=headers)

    for path in ("", "/batch"):
        done = post(path, "one", "another")
        assert (done.status_code, done.json()["error"]["code"]) == (422, "invalid_argument")
        assert "header.idempotency-key" in done.json()["error"]["detail"]
        assert post(path, f"k{path}", f"k{path}").status_code == 201


def test_body_that_is_deep_has_a_fingerprint_or_is_refused(http: httpx.Client, queue: str) -> None:
    headers = {"Idempotency-Key": "deep", "Content-Type": "application/json"}
    for depth in (300, 100_000):
        text = '{"body": ' + "[" * depth + "]" * depth + "}"
        done = http.post(f"/v1/queues/{queue}/messages", content=text, headers=headers)
        assert done.status_code in (201, 400, 422), done.text
